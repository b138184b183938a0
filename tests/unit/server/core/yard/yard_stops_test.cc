// Tests stops that wait for a checkpoint, and devices that are kept for the job for which they were
// freed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/core/yard/yard_fixture.h"

namespace trainyard::core {
namespace {

class YardStops : public YardTest {
 protected:
  YardStops() {
    config_.min_runtime_us = 0;
    Renew();
  }

  struct Trio {
    JobId first;
    JobId wide;
    JobId guest;
  };
  // Gives a worker with two devices a job, one that waits for both of them, and its guest.
  Trio SubmitAGuest() {
    Renew();
    Join("lab-1", 2);
    return {Submit(1), Submit(2), Submit(1)};
  }

  void Renew() { yard_ = std::make_unique<Yard>(config_, Snapshot{}, now_); }

  Submission Urgent(int32_t devices) {
    Submission spec = Spec(devices);
    spec.user = "berta";
    spec.priority = 10;
    return spec;
  }
  void Commit(JobId job, const std::string& worker, int64_t step) {
    const JobRecord& record = Job(job);
    TY_CHECK_OK(Apply(CommitCheckpoint{
        sessions_[worker], {job, record.attempt}, record.fencing_token, step, {}}));
  }
  ObservedAttempt SeeStep(JobId job, int64_t step) {
    ObservedAttempt seen = See(job, ObservedState::kRunning);
    seen.progress.emplace();
    seen.progress->step = step;
    return seen;
  }
  void ReportStep(const std::string& worker, JobId job, int64_t step) {
    TY_CHECK_OK(Sync(worker, {SeeStep(job, step)}));
  }
  int64_t CheckpointRequest(const std::string& worker) {
    return yard_->DesiredFor(worker).at(0).checkpoint_request;
  }
  std::string DeviceOf(JobId job) {
    return yard_->FindAttempt({job, Job(job).attempt})->ranks[0].device;
  }
};

TEST_F(YardStops, AVictimStopsOnceItsCheckpointIsCommittedAndKeepsItsPlace) {
  Join("lab-1", 1);
  const JobId victim = Submit(1);
  Run("lab-1", victim);
  const JobId urgent = Submit(Urgent(1));
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN") << "it goes on until then";
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  EXPECT_EQ(State(victim), "RUNNING");
  EXPECT_TRUE(HasEvent("CHECKPOINT_REQUESTED"));
  Commit(victim, "lab-1", 40);
  EXPECT_EQ(State(victim), "STOPPING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP PREEMPT");
  EXPECT_EQ(State(urgent), "QUEUED") << "its devices are not free yet";
  ASSERT_TRUE(Sync("lab-1", {SeeExit(victim, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(urgent), "STARTING");
  EXPECT_EQ(State(victim), "QUEUED");
  EXPECT_EQ(AttemptState(victim, 1), "PREEMPTED");
  EXPECT_EQ(Job(victim).retries, 0);
  EXPECT_EQ(Job(victim).preemptions, 1);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(urgent, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(victim), "STARTING");
  EXPECT_EQ(yard_->FindAttempt({victim, 2})->resume_from, (CheckpointRef{victim, 40}));
}

TEST_F(YardStops, AVictimThatWritesNoCheckpointIsStoppedAfterTheWait) {
  Join("lab-1", 1);
  const JobId victim = Submit(1);
  Run("lab-1", victim);
  Submit(Urgent(1));
  EXPECT_EQ(State(victim), "RUNNING");
  const int64_t end = now_.uptime_us + config_.checkpoint_wait_us;
  while (now_.uptime_us < end) {
    EXPECT_EQ(State(victim), "RUNNING");
    Advance(5 * kSecond);
    Run("lab-1", victim);
  }
  EXPECT_EQ(State(victim), "STOPPING");
}

TEST_F(YardStops, WhatIsFreedIsKeptForThePreemptor) {
  Join("lab-1", 2);
  const JobId first = Submit(1), second = Submit(1);
  ASSERT_TRUE(
      Sync("lab-1", {See(first, ObservedState::kRunning), See(second, ObservedState::kRunning)})
          .ok());
  const JobId urgent = Submit(Urgent(2));
  const JobId small = Submit(1);
  Commit(first, "lab-1", 10);
  ASSERT_TRUE(
      Sync("lab-1", {SeeExit(first, OutcomeKind::kStopped), See(second, ObservedState::kRunning)})
          .ok());
  EXPECT_EQ(State(urgent), "QUEUED");
  EXPECT_EQ(State(first), "QUEUED") << "its own device is free, and not for it";
  EXPECT_EQ(State(small), "QUEUED");
  Commit(second, "lab-1", 10);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(second, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(urgent), "STARTING");
}

TEST_F(YardStops, WhatIsFreedIsKeptWhileTheRestStopsForAnotherReason) {
  Join("lab-1", 2);
  const JobId leaving = Submit(1);
  Run("lab-1", leaving);
  const JobId wide = Submit(2);  // keeps the other device
  const JobId guest = Submit(1);
  ASSERT_TRUE(
      Sync("lab-1", {See(leaving, ObservedState::kRunning), See(guest, ObservedState::kRunning)})
          .ok());
  Advance(10 * kSecond);
  ASSERT_TRUE(Apply(SuspendJob{leaving, "user:anna", ""}).ok());
  Commit(guest, "lab-1", 10);
  EXPECT_EQ(State(guest), "STOPPING") << "its device goes to the wide job";
  ASSERT_TRUE(
      Sync("lab-1", {See(leaving, ObservedState::kStopping), SeeExit(guest, OutcomeKind::kStopped)})
          .ok());
  // A user who has used less comes first in the queue, but does not get devices that are kept.
  Submission other = Spec(2);
  other.user = "berta";
  const JobId first = Submit(other);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(leaving, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(wide), "STARTING");
  EXPECT_EQ(State(first), "QUEUED");
}

TEST_F(YardStops, WhoeverHasNotBeenStoppedYetIsSparedWhenThePreemptorGivesUp) {
  Join("lab-1", 1);
  const JobId victim = Submit(1);
  Run("lab-1", victim);
  const JobId urgent = Submit(Urgent(1));
  ASSERT_TRUE(Apply(CancelJob{urgent, "user:berta", ""}).ok());
  EXPECT_TRUE(HasEvent("STOP_WITHDRAWN"));
  Commit(victim, "lab-1", 40);
  EXPECT_EQ(State(victim), "RUNNING");
  Advance(2 * config_.checkpoint_wait_us);
  EXPECT_EQ(State(victim), "RUNNING");
}

TEST_F(YardStops, AVictimStaysWhereThePreemptorStartsOnOtherDevices) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId victim = Submit(1);
  Run("lab-1", victim);
  const JobId other = Submit(Urgent(1));
  Run("lab-2", other);
  const JobId urgent = Submit(Urgent(1));
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  ASSERT_TRUE(Sync("lab-2", {SeeExit(other, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(urgent), "STARTING") << "it does not wait for the victim's devices";
  EXPECT_EQ(yard_->FindAttempt({urgent, 1})->ranks[0].worker, "lab-2");
  EXPECT_TRUE(HasEvent("STOP_WITHDRAWN"));
  Commit(victim, "lab-1", 40);
  EXPECT_EQ(State(victim), "RUNNING");
}

TEST_F(YardStops, APreemptorThatHasBeenMadeRoomForWaitsForTheRest) {
  Join("lab-1", 2);
  Join("lab-2", 2);
  const JobId first = Submit(1), second = Submit(1);
  ASSERT_TRUE(
      Sync("lab-1", {See(first, ObservedState::kRunning), See(second, ObservedState::kRunning)})
          .ok());
  const JobId other = Submit(Urgent(2));
  Run("lab-2", other);
  const JobId urgent = Submit(Urgent(2));
  const JobId small = Submit(1);
  Commit(first, "lab-1", 10);
  ASSERT_TRUE(
      Sync("lab-1", {SeeExit(first, OutcomeKind::kStopped), See(second, ObservedState::kRunning)})
          .ok());
  EXPECT_EQ(State(small), "QUEUED") << "the free device is claimed";
  EXPECT_EQ(State(first), "QUEUED");
  ASSERT_TRUE(Sync("lab-2", {SeeExit(other, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(urgent), "QUEUED") << "the first has been stopped for it";
  EXPECT_EQ(State(first), "STARTING") << "on what the urgent job has no need of";
  EXPECT_EQ(State(small), "STARTING");
}

TEST_F(YardStops, ADrainStaysWhereThePreemptionThatCameBeforeItIsWithdrawn) {
  Join("lab-1", 1);
  const JobId victim = Submit(1);
  Run("lab-1", victim);
  const JobId urgent = Submit(Urgent(1));
  ASSERT_TRUE(Apply(DrainWorker{"lab-1", "user:op", "", 0}).ok());
  ASSERT_TRUE(Apply(CancelJob{urgent, "user:berta", ""}).ok());
  EXPECT_FALSE(HasEvent("STOP_WITHDRAWN"));
  EXPECT_EQ(CheckpointRequest("lab-1"), 1) << "one checkpoint will do";
  Commit(victim, "lab-1", 40);
  EXPECT_EQ(State(victim), "STOPPING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP DRAIN");
}

TEST_F(YardStops, APreemptorWhoseVictimIsDrainedLooksForAnother) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId first = Submit(1), second = Submit(1);
  Run("lab-1", first);
  Run("lab-2", second);
  Commit(second, "lab-2", 10);
  Submit(Urgent(1));
  ASSERT_EQ(CheckpointRequest("lab-1") + CheckpointRequest("lab-2"), 1);
  const std::string worker = CheckpointRequest("lab-1") == 1 ? "lab-1" : "lab-2";
  ASSERT_TRUE(Apply(DrainWorker{worker, "user:op", "", 0}).ok());
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  EXPECT_EQ(CheckpointRequest("lab-2"), 1) << "nobody gets the devices of a drained worker";
}

TEST_F(YardStops, ACheckpointOlderThanTheRequestFiresNoStop) {
  Join("lab-1", 1);
  const JobId victim = Submit(1);
  ReportStep("lab-1", victim, 100);
  Submit(Urgent(1));
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  Commit(victim, "lab-1", 60);  // it was under way
  EXPECT_EQ(State(victim), "RUNNING");
  ReportStep("lab-1", victim, 130);
  Commit(victim, "lab-1", 120);  // made because of the request
  EXPECT_EQ(State(victim), "STOPPING");
}

TEST_F(YardStops, TheStepOfAnEarlierAttemptIsNoMeasureOfARequest) {
  Join("lab-1", 1);
  const JobId victim = Submit(1);
  ReportStep("lab-1", victim, 100);
  ASSERT_TRUE(Apply(SuspendJob{victim, "user:anna", ""}).ok());
  ASSERT_TRUE(Sync("lab-1", {SeeExit(victim, OutcomeKind::kStopped)}).ok());
  ASSERT_TRUE(Apply(ResumeJob{victim, "user:anna"}).ok());
  Run("lab-1", victim);
  Submit(Urgent(1));
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  Commit(victim, "lab-1", 10);
  EXPECT_EQ(State(victim), "STOPPING");
}

TEST_F(YardStops, AfterARestartTheFirstReportTellsWhichCheckpointsAreOlder) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  ReportStep("lab-1", job, 100);
  ASSERT_TRUE(Apply(DrainWorker{"lab-1", "user:op", "new kernel"}).ok());
  Restart();
  ASSERT_TRUE(Register("lab-1", 1).ok());
  SyncReport first{sessions_["lab-1"], ++sequences_["lab-1"], 0, {SeeStep(job, 110)}, {}};
  ASSERT_TRUE(Apply(first).ok());
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  ReportStep("lab-1", job, 150);
  Commit(job, "lab-1", 100);
  EXPECT_EQ(State(job), "RUNNING");
  Commit(job, "lab-1", 120);
  EXPECT_EQ(State(job), "STOPPING");
}

TEST_F(YardStops, NobodyIsPreemptedWithinItsMinimumRuntime) {
  config_.min_runtime_us = kMinute;
  config_.replan_us = 10 * kSecond;
  Renew();
  Join("lab-1", 1);
  const JobId victim = Submit(1);
  Run("lab-1", victim);
  Submit(Urgent(1));
  EXPECT_EQ(CheckpointRequest("lab-1"), 0);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(CheckpointRequest("lab-1"), 0);
    Advance(10 * kSecond);
    Run("lab-1", victim);
  }
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
}

TEST_F(YardStops, AnElasticVictimShrinksAndGoesOnWithWhatItKeeps) {
  Join("lab-1", 4);
  Submission elastic = Spec(4);
  elastic.demand.min_count = 2;
  const JobId victim = Submit(elastic);
  Run("lab-1", victim);
  const JobId urgent = Submit(Urgent(2));
  Commit(victim, "lab-1", 40);
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP RESIZE");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(victim, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(urgent), "STARTING");
  EXPECT_EQ(State(victim), "STARTING");
  EXPECT_EQ(yard_->FindAttempt({victim, 2})->ranks.size(), 2u);
  EXPECT_EQ(Job(victim).preemptions, 0) << "it only became smaller";
}

TEST_F(YardStops, AnElasticJobGrowsWhenDevicesStayFree) {
  Join("lab-1", 4);
  const JobId small = Submit(2);
  Submission elastic = Spec(4);
  elastic.demand.min_count = 2;
  const JobId job = Submit(elastic);
  ASSERT_TRUE(
      Sync("lab-1", {See(small, ObservedState::kRunning), See(job, ObservedState::kRunning)}).ok());
  EXPECT_EQ(yard_->FindAttempt({job, 1})->ranks.size(), 2u);
  ASSERT_TRUE(
      Sync("lab-1", {SeeExit(small, OutcomeKind::kSucceeded), See(job, ObservedState::kRunning)})
          .ok());
  EXPECT_EQ(yard_->DesiredFor("lab-1").back().checkpoint_request, 0) << "not at once";
  Advance(config_.grow_after_us);
  ASSERT_TRUE(Sync("lab-1", {See(job, ObservedState::kStarting)}).ok());
  Run("lab-1", job);
  Commit(job, "lab-1", 40);
  ASSERT_EQ(Desired("lab-1"), "jobs/2/attempts/1 STOP RESIZE");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(yard_->FindAttempt({job, 2})->ranks.size(), 4u);
}

TEST_F(YardStops, ADrainEndsByItsDeadline) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(DrainWorker{"lab-1", "user:op", "new kernel", 20 * kSecond}).ok());
  EXPECT_EQ(yard_->NextDeadline(), now_.uptime_us + config_.lease_us);
  Advance(10 * kSecond);
  Run("lab-1", job);
  EXPECT_EQ(State(job), "RUNNING");
  Advance(10 * kSecond);
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP DRAIN");
}

TEST_F(YardStops, AWorkerThatDrainsIsDrainedOnAfterARestart) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(DrainWorker{"lab-1", "user:op", "new kernel"}).ok());
  Restart();
  ASSERT_TRUE(Register("lab-1", 1).ok());
  Run("lab-1", job);
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  Commit(job, "lab-1", 40);
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP DRAIN");
}

TEST_F(YardStops, AJobIsWarnedOfItsTimeLimitByARequestForACheckpoint) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.time_limit_us = 60 * kSecond;
  spec.time_limit_warning_us = 20 * kSecond;
  const JobId job = Submit(spec);
  Run("lab-1", job);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(CheckpointRequest("lab-1"), 0);
    Advance(10 * kSecond);
    Run("lab-1", job);
  }
  EXPECT_EQ(CheckpointRequest("lab-1"), 1);
  EXPECT_TRUE(HasEvent("TIME_LIMIT_NEAR"));
  EXPECT_EQ(State(job), "RUNNING");
  Advance(10 * kSecond);
  Run("lab-1", job);
  EXPECT_EQ(CheckpointRequest("lab-1"), 1) << "warned once";
  Advance(10 * kSecond);
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP TIME_LIMIT");
}

TEST_F(YardStops, AGuestGoesForWhomItsDevicesAreKept) {
  config_.min_runtime_us = kHour;
  const auto [first, wide, guest] = SubmitAGuest();
  EXPECT_EQ(State(guest), "STARTING");
  ASSERT_TRUE(
      Sync("lab-1", {See(first, ObservedState::kRunning), See(guest, ObservedState::kRunning)})
          .ok());
  EXPECT_EQ(CheckpointRequest("lab-1"), 0);
  ASSERT_TRUE(
      Sync("lab-1", {SeeExit(first, OutcomeKind::kSucceeded), See(guest, ObservedState::kRunning)})
          .ok());
  EXPECT_TRUE(HasEvent("CHECKPOINT_REQUESTED")) << "no minimum runtime protects a guest";
  Commit(guest, "lab-1", 40);
  EXPECT_EQ(State(guest), "STOPPING");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(guest, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(wide), "STARTING");
  EXPECT_EQ(State(guest), "QUEUED");
}

TEST_F(YardStops, AGuestIsStillOneAfterARestart) {
  config_.min_runtime_us = kHour;
  const auto [first, wide, guest] = SubmitAGuest();
  const std::vector<ObservedAttempt> both = {See(first, ObservedState::kRunning),
                                             See(guest, ObservedState::kRunning)};
  ASSERT_TRUE(Sync("lab-1", both).ok());
  Restart();
  ASSERT_TRUE(Register("lab-1", 2).ok());
  ASSERT_TRUE(Sync("lab-1", both).ok());
  ASSERT_TRUE(
      Sync("lab-1", {SeeExit(first, OutcomeKind::kSucceeded), See(guest, ObservedState::kRunning)})
          .ok());
  EXPECT_TRUE(HasEvent("CHECKPOINT_REQUESTED")) << "no minimum runtime protects a guest";
  Commit(guest, "lab-1", 40);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(guest, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(wide), "STARTING");
}

TEST_F(YardStops, AGuestStaysOnceNobodyWaitsForItsDevices) {
  const auto [first, wide, guest] = SubmitAGuest();
  ASSERT_TRUE(
      Sync("lab-1", {See(first, ObservedState::kRunning), See(guest, ObservedState::kRunning)})
          .ok());
  ASSERT_TRUE(Apply(CancelJob{wide, "user:anna", ""}).ok());
  const JobId other = Submit(2);
  ASSERT_TRUE(
      Sync("lab-1", {SeeExit(first, OutcomeKind::kSucceeded), See(guest, ObservedState::kRunning)})
          .ok());
  EXPECT_FALSE(HasEvent("CHECKPOINT_REQUESTED"));
  EXPECT_EQ(State(other), "QUEUED");
}

}  // namespace
}  // namespace trainyard::core
