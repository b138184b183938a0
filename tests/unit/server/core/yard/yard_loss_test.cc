// Tests workers that disappear, and come back or not.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using YardLoss = YardTest;

TEST_F(YardLoss, UnreachableCostsARunningJobNothing) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  Advance(config_.lease_us);
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  EXPECT_EQ(State(job), "RUNNING");
  Advance(9 * kMinute);
  EXPECT_EQ(State(job), "RUNNING");
  Run("lab-1", job);
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(Job(job).attempt, 1);
}

TEST_F(YardLoss, AJobSaysWhichOfItsWorkersIsOutOfContact) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId job = Submit(2);
  const JobId waiting = Submit(1);
  Run("lab-1", job);
  Run("lab-2", job);
  EXPECT_THAT(yard_->QueueReasons(job), IsEmpty());
  Advance(config_.lease_us / 2);
  Run("lab-2", job);
  Advance(config_.lease_us / 2);
  ASSERT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  EXPECT_TRUE(turn_.reasons_changed.contains(job));
  const int64_t wait_us =
      Job(job).submission->disconnect_keep_us + config_.lease_grace_us + config_.lost_margin_us;
  EXPECT_THAT(yard_->QueueReasons(job),
              ElementsAre(absl::StrCat("worker lab-1 is out of contact; if that lasts ",
                                       DurationText(absl::Microseconds(wait_us)),
                                       ", its part of the job counts as lost")));
  EXPECT_THAT(yard_->QueueReasons(waiting), Not(Contains(HasSubstr("out of contact"))));
  Run("lab-1", job);
  EXPECT_TRUE(turn_.reasons_changed.contains(job));
  EXPECT_THAT(yard_->QueueReasons(job), IsEmpty());
}

TEST_F(YardLoss, AnAttemptIsLostAfterKeepStopAndMargin) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  const int64_t keep = Job(job).submission->disconnect_keep_us;
  const int64_t lost =
      now_.uptime_us + config_.lease_us + keep + config_.lease_grace_us + config_.lost_margin_us;
  while (now_.uptime_us + 10 * kSecond < lost) {
    Advance(10 * kSecond);
    ASSERT_TRUE(Sync("lab-2", {}).ok());
    ASSERT_EQ(State(job), "RUNNING");
  }
  Advance(lost - now_.uptime_us);
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Desired("lab-2"), "jobs/1/attempts/2 RUN");
  EXPECT_EQ(Job(job).fencing_token, 2);
}

TEST_F(YardLoss, AJobThatKeepsNothingRunsElsewhereHalfAMinuteLater) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  Submission submission = Spec(1);
  submission.disconnect_keep_us = 0;
  const JobId job = Submit(submission);
  Run("lab-1", job);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(State(job), "RUNNING");
    Advance(5 * kSecond);
    ASSERT_TRUE(Sync("lab-2", {}).ok());
  }
  EXPECT_EQ(Desired("lab-2"), "jobs/1/attempts/2 RUN");
}

TEST_F(YardLoss, WhoKnowsThatAHostIsOffNeedNotWait) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  EXPECT_EQ(Apply(DeclareWorkerLost{"lab-1", "user:op", ""}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Apply(DeclareWorkerLost{"lab-9", "user:op", ""}).code(), absl::StatusCode::kNotFound);
  Advance(config_.lease_us - kSecond);
  ASSERT_TRUE(Sync("lab-2", {}).ok());
  Advance(kSecond);
  ASSERT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  ASSERT_TRUE(Apply(DeclareWorkerLost{"lab-1", "user:op", "its power supply burnt"}).ok());
  EXPECT_EQ(WorkerState("lab-1"), "GONE");
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(Desired("lab-2"), "jobs/1/attempts/2 RUN");
  EXPECT_TRUE(Apply(DeclareWorkerLost{"lab-1", "user:op", ""}).ok()) << "said twice";
}

TEST_F(YardLoss, AWorkerThatRunsNothingCanBeForgotten) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  const auto forget = [&](const std::string& worker) {
    return Apply(DeleteWorker{worker, "user:op", "sold"});
  };
  EXPECT_EQ(forget("lab-9").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(forget("lab-1").message()), ::testing::HasSubstr("it still reports"));
  Advance(config_.lease_us - kSecond);
  ASSERT_TRUE(Sync("lab-2", {}).ok());
  Advance(kSecond);
  ASSERT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  EXPECT_THAT(std::string(forget("lab-1").message()),
              ::testing::HasSubstr("jobs/1/attempts/1 may still run there"));
  ASSERT_TRUE(Apply(DeclareWorkerLost{"lab-1", "user:op", ""}).ok());
  ASSERT_TRUE(forget("lab-1").ok());
  EXPECT_EQ(turn_.delta.deleted_workers, std::vector<std::string>{"lab-1"});
  EXPECT_EQ(yard_->snapshot().workers.count("lab-1"), 0u);
  EXPECT_EQ(forget("lab-1").code(), absl::StatusCode::kNotFound);
  Advance(config_.lease_us / 2);  // no timer of it fires any more
  EXPECT_EQ(Desired("lab-2"), "jobs/1/attempts/2 RUN");
  Join("lab-1", 1);
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  EXPECT_EQ(State(Submit(1)), "STARTING") << "its device is in the pool again";
}

TEST_F(YardLoss, AWorkerThatWakesUpLateIsFenced) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  const ObservedAttempt old = See(job, ObservedState::kRunning);
  Advance(config_.lease_us);
  Advance(20 * kMinute);
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_EQ(WorkerState("lab-1"), "GONE");
  EXPECT_EQ(Sync("lab-1", {old}).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Sync("lab-1", {old}).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP NONE");
  EXPECT_EQ(State(job), "QUEUED") << "the old ranks still sit on the device";
  ObservedAttempt gone = old;
  gone.state = ObservedState::kExited;
  ASSERT_TRUE(Sync("lab-1", {gone}).ok());
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 REMOVE; jobs/1/attempts/2 RUN");
}

TEST_F(YardLoss, RanksThatTheSupervisorStoppedForWantOfALeaseAreLost) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  Failure expired{FailureClass::kNone, "LEASE_EXPIRED", ""};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped, expired)}).ok());
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Job(job).retries, 0);
}

TEST_F(YardLoss, OneLostWorkerStopsTheRestOfTheGangBeforeItIsPlacedAgain) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId job = Submit(2);
  Run("lab-1", job);
  Run("lab-2", job);
  for (int i = 0; i < 69; ++i) {
    Advance(10 * kSecond);
    ASSERT_TRUE(Sync("lab-2", {See(job, ObservedState::kRunning)}).ok());
  }
  EXPECT_EQ(AttemptState(job, 1), "STOPPING");
  EXPECT_EQ(Desired("lab-2"), "jobs/1/attempts/1 STOP NONE");
  ASSERT_TRUE(Sync("lab-2", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(State(job), "QUEUED");
}

TEST_F(YardLoss, AnIdleWorkerIsGoneAfterAWhile) {
  Join("lab-1", 1);
  Advance(config_.lease_us);
  EXPECT_EQ(yard_->NextDeadline(), now_.uptime_us + config_.gone_after_us);
  Advance(config_.gone_after_us);
  EXPECT_EQ(WorkerState("lab-1"), "GONE");
  EXPECT_EQ(yard_->NextDeadline(), std::nullopt);
  EXPECT_EQ(ErrorReason(Sync("lab-1", {})), "UNKNOWN_SESSION") << "its session has ended";
  ASSERT_TRUE(Register("lab-1", 1).ok());
  EXPECT_EQ(WorkerState("lab-1"), "GONE") << "it may not hear";
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
}

TEST_F(YardLoss, AJumpOfTheWallClockEndsNoLease) {
  Join("lab-1", 1);
  now_.wall_us += int64_t{24} * 3600 * kSecond;
  Settle();
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  now_.wall_us -= int64_t{48} * 3600 * kSecond;
  Settle();
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
}

}  // namespace
}  // namespace trainyard::core
