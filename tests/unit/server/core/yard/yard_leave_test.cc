// Tests that a worker whose daemon is to end is emptied, and gets ranks again in its next session.
#include <gmock/gmock.h>

#include <algorithm>

#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;

class YardLeave : public YardTest {
 protected:
  absl::Status SyncLeaving(const std::string& worker, std::vector<ObservedAttempt> attempts,
                           int64_t within_us = 20 * kSecond) {
    SyncReport report;
    report.session = sessions_[worker];
    report.sequence = ++sequences_[worker];
    report.desired_revision = yard_->DesiredRevision(worker);
    report.attempts = std::move(attempts);
    report.leave_within_us = within_us;
    return Apply(report);
  }
  int64_t CheckpointRequest(const std::string& worker) {
    const auto desired = yard_->DesiredFor(worker);
    return desired.empty() ? 0 : desired.front().checkpoint_request;
  }
  int CountEvents(const std::string& type) {
    return static_cast<int>(
        std::count_if(events_.begin(), events_.end(),
                      [&type](const EventRecord& event) { return event.type == type; }));
  }
};

TEST_F(YardLeave, WhatRunsThereWritesACheckpointStopsAndGoesOnElsewhere) {
  Join("pod-1", 1);
  const JobId job = Submit(1);
  Run("pod-1", job);
  ASSERT_TRUE(SyncLeaving("pod-1", {See(job, ObservedState::kRunning)}).ok());
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(CheckpointRequest("pod-1"), 1);
  EXPECT_EQ(CountEvents("WORKER_LEAVING"), 1);
  ASSERT_TRUE(Apply(CommitCheckpoint{sessions_["pod-1"],
                                     {job, 1},
                                     Job(job).fencing_token,
                                     40,
                                     {{"state.json", 1, "hash"}}})
                  .ok());
  EXPECT_EQ(Desired("pod-1"), "jobs/1/attempts/1 STOP DRAIN");
  Join("pod-2", 1);
  ASSERT_TRUE(SyncLeaving("pod-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(Job(job).retries, 0);
  EXPECT_EQ(Desired("pod-2"), "jobs/1/attempts/2 RUN");
  EXPECT_EQ(CountEvents("WORKER_LEAVING"), 1) << "the wish is told once";
}

TEST_F(YardLeave, TheTimeOfTheWorkerIsTheDeadlineOfTheCheckpoint) {
  Join("pod-1", 1);
  const JobId job = Submit(1);
  Run("pod-1", job);
  ASSERT_TRUE(SyncLeaving("pod-1", {See(job, ObservedState::kRunning)}, 5 * kSecond).ok());
  Advance(4 * kSecond);
  EXPECT_EQ(State(job), "RUNNING");
  Advance(kSecond);
  EXPECT_EQ(State(job), "STOPPING");
}

TEST_F(YardLeave, ItGetsNothingUntilItComesBackInANewSession) {
  Join("pod-1", 1);
  ASSERT_TRUE(SyncLeaving("pod-1", {}).ok());
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_THAT(yard_->Explain(job, now_).reasons,
              Contains("worker pod-1 is being stopped (1 device)"));
  Join("pod-1", 1);
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(yard_->FindWorker("pod-1")->scheduling, Scheduling::kEligible);
}

TEST_F(YardLeave, TheDrainOfAnOperatorOutlivesTheRestart) {
  Join("pod-1", 1);
  ASSERT_TRUE(SyncLeaving("pod-1", {}).ok());
  ASSERT_TRUE(Apply(DrainWorker{"pod-1", "user:op", "new disk"}).ok());
  Join("pod-1", 1);
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_EQ(yard_->FindWorker("pod-1")->scheduling, Scheduling::kDraining);
}

TEST_F(YardLeave, AServerThatRestartsMeanwhileIsToldAgain) {
  Join("pod-1", 1);
  const JobId job = Submit(1);
  Run("pod-1", job);
  ASSERT_TRUE(SyncLeaving("pod-1", {See(job, ObservedState::kRunning)}).ok());
  Restart();
  ASSERT_TRUE(Register("pod-1", 1).ok());
  ASSERT_TRUE(SyncLeaving("pod-1", {See(job, ObservedState::kRunning)}).ok());
  EXPECT_EQ(CheckpointRequest("pod-1"), 1);
  Advance(20 * kSecond);
  EXPECT_EQ(State(job), "STOPPING");
}

}  // namespace
}  // namespace trainyard::core
