// Tests registration, reports, and gangs over several workers.
#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using YardSync = YardTest;

TEST_F(YardSync, AnUnknownSessionHasToRegister) {
  EXPECT_EQ(ErrorReason(Sync("lab-1", {})), "UNKNOWN_SESSION");
}

TEST_F(YardSync, ANewSessionEndsTheOldOne) {
  Join("lab-1", 1);
  const std::string old = sessions_["lab-1"];
  ASSERT_TRUE(Register("lab-1", 1).ok());
  EXPECT_EQ(ErrorReason(Apply(SyncReport{old, 9, 0, {}, {}})), "UNKNOWN_SESSION");
  EXPECT_FALSE(yard_->WorkerOfSession(old).ok());
  EXPECT_EQ(*yard_->WorkerOfSession(sessions_["lab-1"]), "lab-1");
}

TEST_F(YardSync, ASecondWorkerOfTheSameNameIsRefusedWhileTheFirstIsActive) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  EXPECT_EQ(ErrorReason(Register("lab-1", 1, "other")), "WORKER_NAME_TAKEN");
  Advance(config_.lease_us);
  EXPECT_EQ(ErrorReason(Register("lab-1", 1, "other")), "WORKER_NAME_TAKEN")
      << "the first may still run jobs/1";
  Advance(10 * kMinute + 60 * kSecond);
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_TRUE(Register("lab-1", 1, "other").ok());
}

TEST_F(YardSync, NothingIsPlacedBeforeTheSessionHasReportedWhatRuns) {
  ASSERT_TRUE(Register("lab-1", 1).ok());
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED");
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(State(job), "STARTING");
}

TEST_F(YardSync, ARestartedDaemonKeepsItsAttempts) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Register("lab-1", 1).ok());
  EXPECT_EQ(State(job), "RUNNING");
  Run("lab-1", job);
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(Job(job).attempt, 1);
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
}

TEST_F(YardSync, AnAttemptThatWasNeverStartedIsAskedForAgain) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
}

TEST_F(YardSync, AnAttemptThatTheWorkerHasForgottenIsLostAtOnce) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(State(job), "STARTING") << "placed again in the same turn";
  EXPECT_EQ(Job(job).attempt, 2);
  EXPECT_EQ(Job(job).retries, 0);
}

TEST_F(YardSync, RepeatedAndOvertakenReportsChangeNothing) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  SyncReport report{sessions_["lab-1"], 10, 1, {See(job, ObservedState::kRunning)}, {}};
  ASSERT_TRUE(Apply(report).ok());
  const Snapshot before = yard_->snapshot();
  ASSERT_TRUE(Apply(report).ok());
  EXPECT_TRUE(turn_.delta.empty());
  SyncReport overtaken{sessions_["lab-1"], 9, 1, {}, {}};
  ASSERT_TRUE(Apply(overtaken).ok());
  EXPECT_EQ(yard_->snapshot(), before);
  EXPECT_EQ(State(job), "RUNNING");
}

TEST_F(YardSync, StaleAndUnknownAttemptsAreStoppedThenRemoved) {
  Join("lab-1", 2);
  ObservedAttempt stranger;
  stranger.attempt = {JobId{77}, 1};
  stranger.fencing_token = 5;
  stranger.state = ObservedState::kRunning;
  ASSERT_TRUE(Sync("lab-1", {stranger}).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/77/attempts/1 STOP NONE");
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED") << "nobody knows which devices the stranger uses";
  stranger.state = ObservedState::kExited;
  ASSERT_TRUE(Sync("lab-1", {stranger}).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/77/attempts/1 REMOVE; jobs/78/attempts/1 RUN")
      << "its number is not given again";
}

TEST_F(YardSync, AStaleTokenChangesNothing) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  ObservedAttempt stale = See(job, ObservedState::kRunning);
  stale.fencing_token = 99;
  ASSERT_TRUE(Sync("lab-1", {stale}).ok());
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP NONE");
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
}

TEST_F(YardSync, StreamsAndCheckpointsAreFenced) {
  Join("lab-1", 2);
  const JobId job = Submit(1);
  Run("lab-1", job);
  const std::string session = sessions_["lab-1"];
  EXPECT_TRUE(yard_->CheckStream(session, {job, 1}, 1).ok());
  EXPECT_EQ(ErrorReason(yard_->CheckStream(session, {job, 1}, 2)), "STALE_FENCING_TOKEN");
  EXPECT_EQ(ErrorReason(yard_->CheckStream("nobody", {job, 1}, 1)), "UNKNOWN_SESSION");
  EXPECT_EQ(yard_->CheckStream(session, {job, 2}, 1).code(), absl::StatusCode::kNotFound);
  const Failure failure{FailureClass::kHardware, "", "bad device"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, failure)}).ok());
  ASSERT_EQ(Job(job).fencing_token, 2);
  EXPECT_TRUE(yard_->CheckStream(session, {job, 1}, 1).ok()) << "its last log lines are welcome";
  EXPECT_EQ(ErrorReason(yard_->CheckCheckpointWriter(session, {job, 1}, 1)), "STALE_FENCING_TOKEN");
  EXPECT_EQ(ErrorReason(Apply(CommitCheckpoint{session, {job, 1}, 1, 10, {}})),
            "STALE_FENCING_TOKEN");
}

TEST_F(YardSync, AGangOverTwoWorkersStartsAndStopsAsOne) {
  Join("lab-1", 2);
  Join("lab-2", 1);
  const JobId job = Submit(3);
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
  EXPECT_EQ(Desired("lab-2"), "jobs/1/attempts/1 RUN");
  EXPECT_TRUE(yard_->DesiredFor("lab-1")[0].spans_workers);
  ObservedAttempt starting = See(job, ObservedState::kStarting);
  starting.rendezvous = {{"rank-0", "10.0.0.1:4000"}};
  ASSERT_TRUE(Sync("lab-1", {starting}).ok());
  EXPECT_EQ(yard_->DesiredFor("lab-2")[0].rendezvous, starting.rendezvous);
  EXPECT_EQ(yard_->DesiredFor("lab-1")[0].rendezvous, starting.rendezvous) << "it has arrived";
  // A worker does not tell again what has come back to it, and a part that runs may have more.
  ObservedAttempt running = See(job, ObservedState::kRunning);
  running.rendezvous = {{"rank-1", "10.0.0.1:4001"}};
  ASSERT_TRUE(Sync("lab-1", {running}).ok());
  EXPECT_EQ(yard_->DesiredFor("lab-2")[0].rendezvous,
            (std::map<std::string, std::string>{{"rank-0", "10.0.0.1:4000"},
                                                {"rank-1", "10.0.0.1:4001"}}));
  EXPECT_EQ(State(job), "STARTING") << "one of two parts runs";
  Run("lab-2", job);
  EXPECT_EQ(State(job), "RUNNING");

  const Failure failure{FailureClass::kTransient, "SIGKILL", "rank 2 was killed"};
  ASSERT_TRUE(Sync("lab-2", {SeeExit(job, OutcomeKind::kFailed, failure)}).ok());
  EXPECT_EQ(AttemptState(job, 1), "STOPPING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP NONE");
  EXPECT_EQ(State(job), "RUNNING");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(AttemptState(job, 1), "FAILED");
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_EQ(std::get<job_fsm::Queued>(Job(job).state).last_failure, failure);
}

TEST_F(YardSync, AFailureOfNoKnownClassCountsAsTransient) {
  Join("lab-1", 1);
  for (const FailureClass claimed : {FailureClass::kNone, FailureClass::kLost}) {
    const JobId job = Submit(1);
    ASSERT_TRUE(
        Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, {claimed, "", "it broke"})}).ok());
    EXPECT_EQ(AttemptState(job, 1), "FAILED");
    EXPECT_EQ(Job(job).retries, 1);
    ASSERT_TRUE(Apply(CancelJob{job, "user:anna", ""}).ok());
  }
}

TEST_F(YardSync, ASickDeviceIsNotOffered) {
  Join("lab-1", 1);
  SyncReport report{sessions_["lab-1"], 10, 1, {}, Cpus(1)};
  report.devices[0].health = DeviceHealth::kQuarantined;
  report.devices[0].health_reason = "Xid 79";
  ASSERT_TRUE(Apply(report).ok());
  EXPECT_TRUE(HasEvent("DEVICE_QUARANTINED"));
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED");
  report.devices[0].health = DeviceHealth::kOk;
  report.devices[0].health_reason = "";
  ASSERT_TRUE(Apply(report).ok());
  EXPECT_EQ(State(job), "STARTING");
}

TEST_F(YardSync, WhatDevicesDoIsPassedOnWhileTheWorkerIsHeardOf) {
  Join("lab-1", 1);
  EXPECT_TRUE(yard_->UsageOn("lab-1").empty());
  SyncReport report{sessions_["lab-1"], 10, 1, {}, {}};
  report.usage["cpu-0"] = "half of it";
  ASSERT_TRUE(Apply(report).ok());
  ASSERT_EQ(yard_->UsageOn("lab-1").count("cpu-0"), 1u);
  EXPECT_EQ(yard_->UsageOn("lab-1").at("cpu-0"), "half of it");
  EXPECT_TRUE(yard_->UsageOn("lab-2").empty());
  Advance(60'000'000);
  EXPECT_TRUE(yard_->UsageOn("lab-1").empty()) << "nobody knows what it does now";
}

TEST_F(YardSync, ProgressComesFromRankZeroAndIsWrittenOnlyWhenItChanges) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ObservedAttempt seen = See(job, ObservedState::kRunning);
  seen.progress = Progress{12, 0};
  seen.metrics.values = {{"train.loss", 1.7}};
  seen.data_digest = "glyphs-v1:1";
  ASSERT_TRUE(Sync("lab-1", {seen}).ok());
  EXPECT_EQ(Job(job).progress.step, 12);
  EXPECT_EQ(Job(job).metrics.values.at("train.loss"), 1.7);
  EXPECT_EQ(Job(job).data_digest, "glyphs-v1:1");
  ASSERT_TRUE(Sync("lab-1", {seen}).ok());
  EXPECT_TRUE(turn_.delta.empty());
}

TEST_F(YardSync, AReportIsKeptWithTheJobAndWrittenOnlyWhenItChanges) {
  Join("lab-1", 2);
  const JobId job = Submit(2);
  Run("lab-1", job);
  ObservedAttempt seen = See(job, ObservedState::kRunning);
  seen.progress = Progress{12, 0, std::make_shared<const std::string>("rank 0 computes 6")};
  ASSERT_TRUE(Sync("lab-1", {seen}).ok());
  ASSERT_NE(Job(job).progress.report, nullptr);
  EXPECT_EQ(*Job(job).progress.report, "rank 0 computes 6");
  // The same usage in another string object is no news.
  seen.progress->report = std::make_shared<const std::string>("rank 0 computes 6");
  ASSERT_TRUE(Sync("lab-1", {seen}).ok());
  EXPECT_TRUE(turn_.delta.empty());
  seen.progress->report = std::make_shared<const std::string>("rank 0 computes 5");
  ASSERT_TRUE(Sync("lab-1", {seen}).ok());
  EXPECT_FALSE(turn_.delta.empty());
  EXPECT_EQ(*Job(job).progress.report, "rank 0 computes 5");
}

TEST_F(YardSync, AFullDiskOfAWorkerIsAnEventWhenItComesAndWhenItGoes) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ObservedAttempt seen = See(job, ObservedState::kRunning);
  const auto report = [&](const std::string& disk_full) {
    seen.progress = Progress{++seen.progress.emplace().step, 0, nullptr, disk_full};
    EXPECT_TRUE(Sync("lab-1", {seen}).ok());
    std::vector<std::string> events;
    for (const EventRecord& event : turn_.delta.events) {
      events.push_back(event.type + ": " + event.message);
    }
    return events;
  };
  EXPECT_THAT(report(""), ::testing::IsEmpty());
  EXPECT_THAT(report("metrics wait"), ::testing::ElementsAre("DISK_FULL: metrics wait"));
  EXPECT_THAT(report("checkpoints and metrics wait"), ::testing::IsEmpty())
      << "it was told already";
  EXPECT_EQ(Job(job).progress.disk_full, "checkpoints and metrics wait");
  EXPECT_THAT(report(""), ::testing::ElementsAre("DISK_FREE: "));
}

}  // namespace
}  // namespace trainyard::core
