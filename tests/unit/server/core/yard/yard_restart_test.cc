// Tests a server that dies and comes back: the store has everything, and the workers report the
// rest.
#include <limits>

#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using YardRestart = YardTest;

TEST_F(YardRestart, WhatRunsIsAdopted) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  Advance(10 * kMinute);  // the server was away
  Restart();
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  EXPECT_EQ(ErrorReason(Sync("lab-1", {})), "UNKNOWN_SESSION");
  ASSERT_TRUE(Register("lab-1", 1).ok());
  Run("lab-1", job);
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(Job(job).attempt, 1);
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
}

TEST_F(YardRestart, NumbersThatWerePassedOverStaySo) {
  Join("lab-1", 1);
  EXPECT_EQ(Submit(1), JobId{1});
  ASSERT_TRUE(Apply(SkipJobNumbers{JobId{7}}).ok());
  Restart();
  EXPECT_EQ(Submit(1), JobId{8});
  ASSERT_TRUE(Apply(SkipJobNumbers{JobId{5}}).ok());
  EXPECT_EQ(Submit(1), JobId{9}) << "none comes back";
}

TEST_F(YardRestart, ANumberThatAWorkerKnowsIsNotGivenAgain) {
  Join("lab-1", 1);
  EXPECT_EQ(Submit(1), JobId{1});
  // The backup from which this server was restored did not know jobs 2 to 5 yet.
  ObservedAttempt lost;
  lost.attempt = {JobId{5}, 1};
  lost.fencing_token = 1;
  lost.state = ObservedState::kRunning;
  Restart();
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Sync("lab-1", {lost}).ok());
  EXPECT_TRUE(HasEvent("JOB_NUMBERS_SKIPPED"));
  EXPECT_EQ(Submit(1), JobId{6});
  // No worker can use the numbers up.
  lost.attempt = {JobId{std::numeric_limits<int64_t>::max()}, 1};
  ASSERT_TRUE(Sync("lab-1", {lost}).ok());
  EXPECT_EQ(Submit(1), JobId{7});
}

TEST_F(YardRestart, WorkersGetOneLeaseToComeBack) {
  Join("lab-1", 1);
  now_.uptime_us = 5 * kSecond;  // the machine was restarted too
  Restart();
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED") << "it has not said what it runs";
  Advance(config_.lease_us - 1);
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  Advance(1);
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
}

TEST_F(YardRestart, ABackoffGoesOnAndIsBoundedWhateverTheWallClockSays) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  const Failure failure{FailureClass::kTransient, "PEER_LOST", "peer lost"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, failure)}).ok());
  now_.wall_us -= int64_t{24} * 3600 * kSecond;
  Restart();
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(State(job), "QUEUED");
  for (int64_t waited = 0; waited < config_.backoff_max_us; waited += 10 * kSecond) {
    Advance(10 * kSecond);
    ASSERT_TRUE(Sync("lab-1", {}).ok());
  }
  EXPECT_NE(State(job), "QUEUED");
}

TEST_F(YardRestart, AStopThatWasDecidedIsStillWanted) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(CancelJob{job, "user:anna", ""}).ok());
  Restart();
  ASSERT_TRUE(Register("lab-1", 1).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP CANCEL");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(job), "CANCELLED");
}

TEST_F(YardRestart, AnAttemptThatWaitedForItsStreamsEndsAllTheSame) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ObservedAttempt exited = SeeExit(job, OutcomeKind::kSucceeded);
  exited.drained = false;
  ASSERT_TRUE(Sync("lab-1", {exited}).ok());
  Restart();
  EXPECT_EQ(State(job), "RUNNING");
  Advance(config_.drain_limit_us);
  EXPECT_EQ(State(job), "SUCCEEDED");
}

TEST_F(YardRestart, NumbersGoOn) {
  const JobId first = Submit(1);
  ASSERT_TRUE(Apply(CancelJob{first, "user:anna", ""}).ok());
  const int64_t revision = yard_->snapshot().revision;
  Restart();
  EXPECT_EQ(yard_->snapshot().revision, revision);
  EXPECT_EQ(Submit(1), JobId{first.value + 1});
  EXPECT_EQ(turn_.delta.revision, revision + 1);
  EXPECT_EQ(turn_.delta.events.front().sequence, static_cast<int64_t>(events_.size()));
}

}  // namespace
}  // namespace trainyard::core
