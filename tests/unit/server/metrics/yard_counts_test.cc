// Tests of the counts with records as the writer commits them.
#include "server/metrics/yard_counts.h"

#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/metrics/values.h"

namespace trainyard::metrics {
namespace {

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kStartUs = 1'800'000'000 * kSecondUs;

absl::Time At(int64_t seconds) {
  return absl::FromUnixMicros(kStartUs + seconds * kSecondUs);
}

core::JobRecord Job(int64_t number, const std::string& project, core::JobState state) {
  auto submission = std::make_shared<core::Submission>();
  submission->project = project;
  submission->user = "anna";
  submission->work.length = 10;
  core::JobRecord job;
  job.id = JobId{number};
  job.submission = submission;
  job.state = std::move(state);
  job.create_us = kStartUs;
  return job;
}

core::AttemptRecord Attempt(int64_t job, core::AttemptState state) {
  core::AttemptRecord attempt;
  attempt.id = {JobId{job}, 1};
  attempt.state = std::move(state);
  attempt.ranks = {{0, "lab-1", "gpu-0"}};
  attempt.parts = {{"lab-1", core::PartState::kRunning, {}}};
  attempt.start_us = kStartUs;
  return attempt;
}

core::WorkerRecord Worker(const std::string& name, int devices) {
  core::WorkerRecord worker;
  worker.name = name;
  for (int i = 0; i < devices; ++i) {
    core::DeviceRecord device;
    device.name = absl::StrCat("gpu-", i);
    worker.devices.push_back(device);
  }
  return worker;
}

TEST(YardCounts, JobsAreCountedByStateAndWaitByProject) {
  YardCounts counts;
  core::Delta delta;
  delta.jobs = {Job(1, "vision", core::job_fsm::Queued{}), Job(2, "", core::job_fsm::Queued{})};
  counts.Take(delta, At(0));
  Families families = counts.Collect(At(30), {});
  EXPECT_EQ(ValueOf(families, "trainyard_jobs", {{"state", "queued"}}), 2);
  EXPECT_EQ(ValueOf(families, "trainyard_jobs", {{"state", "running"}}), 0);
  EXPECT_EQ(ValueOf(families, "trainyard_queue_jobs", {{"project", "vision"}}), 1);
  EXPECT_EQ(ValueOf(families, "trainyard_queue_jobs", {{"project", ""}}), 1);
  EXPECT_EQ(ValueOf(families, "trainyard_queue_oldest_wait_seconds", {{"project", "vision"}}), 30);

  delta.jobs = {Job(1, "vision", core::job_fsm::Running{})};
  counts.Take(delta, At(40));
  families = counts.Collect(At(50), {});
  EXPECT_EQ(ValueOf(families, "trainyard_jobs", {{"state", "queued"}}), 1);
  EXPECT_EQ(ValueOf(families, "trainyard_jobs", {{"state", "running"}}), 1);
  EXPECT_EQ(ValueOf(families, "trainyard_queue_oldest_wait_seconds", {{"project", "vision"}}), 0);

  core::Delta deletion;
  deletion.deleted_jobs = {JobId{1}, JobId{2}};
  counts.Take(deletion, At(60));
  for (const auto& [labels, value] : ValuesOf(counts.Collect(At(60), {}), "trainyard_jobs")) {
    EXPECT_EQ(value, 0) << labels.at("state");
  }
}

TEST(YardCounts, AChangeOfAWaitingJobDoesNotRestartItsWait) {
  YardCounts counts;
  core::Delta delta;
  delta.jobs = {Job(1, "vision", core::job_fsm::Queued{})};
  counts.Take(delta, At(0));
  counts.Take(delta, At(100));
  const Families families = counts.Collect(At(120), {});
  EXPECT_EQ(ValueOf(families, "trainyard_queue_oldest_wait_seconds", {{"project", "vision"}}), 120);
}

TEST(YardCounts, JobsThatCannotStartYetDoNotWait) {
  YardCounts counts;
  core::Delta delta;
  core::JobRecord later = Job(1, "vision", core::job_fsm::Queued{kStartUs + 500 * kSecondUs, {}});
  core::JobRecord dependent = Job(3, "vision", core::job_fsm::Queued{});
  auto submission = std::make_shared<core::Submission>(*dependent.submission);
  submission->dependencies = {{JobId{2}, true}};
  dependent.submission = submission;
  delta.jobs = {later, Job(2, "text", core::job_fsm::Running{}), dependent};
  counts.Take(delta, At(0));
  Families families = counts.Collect(At(100), {});
  EXPECT_EQ(ValueOf(families, "trainyard_queue_jobs", {{"project", "vision"}}), 2);
  EXPECT_EQ(ValueOf(families, "trainyard_queue_oldest_wait_seconds", {{"project", "vision"}}), 0);

  delta.jobs = {Job(2, "text", core::job_fsm::Succeeded{})};
  counts.Take(delta, At(100));
  families = counts.Collect(At(100), {});
  EXPECT_EQ(ValueOf(families, "trainyard_queue_oldest_wait_seconds", {{"project", "vision"}}), 100);
}

TEST(YardCounts, AJobThatWaitedForAnotherWaitsSinceTheEndOfThat) {
  YardCounts counts;
  core::Delta delta;
  core::JobRecord dependent = Job(2, "vision", core::job_fsm::Queued{});
  auto submission = std::make_shared<core::Submission>(*dependent.submission);
  submission->dependencies = {{JobId{1}, true}};
  dependent.submission = submission;
  delta.jobs = {Job(1, "text", core::job_fsm::Running{}), dependent};
  counts.Take(delta, At(0));
  core::JobRecord ended = Job(1, "text", core::job_fsm::Succeeded{});
  ended.end_us = absl::ToUnixMicros(At(100));
  delta.jobs = {ended, Job(3, "vision", core::job_fsm::Queued{})};
  counts.Take(delta, At(100));
  Families families = counts.Collect(At(110), {});
  EXPECT_EQ(ValueOf(families, "trainyard_queue_oldest_wait_seconds", {{"project", "vision"}}), 10);
}

TEST(YardCounts, ManyJobsThatWaitForAnotherDoNotMakeAScrapeSlow) {
  YardCounts counts;
  core::Delta delta;
  delta.jobs = {Job(1, "text", core::job_fsm::Running{})};
  for (int64_t i = 2; i <= 400; ++i) {
    core::JobRecord dependent = Job(i, "vision", core::job_fsm::Queued{});
    auto submission = std::make_shared<core::Submission>(*dependent.submission);
    submission->dependencies = {{JobId{1}, true}};
    dependent.submission = submission;
    delta.jobs.push_back(dependent);
  }
  delta.jobs.push_back(Job(401, "vision", core::job_fsm::Queued{}));
  counts.Take(delta, At(0));
  EXPECT_EQ(ValueOf(counts.Collect(At(50), {}), "trainyard_queue_oldest_wait_seconds",
                    {{"project", "vision"}}),
            0)
      << "no more than 256 are looked at";
}

TEST(YardCounts, TheNumberOfProjectsIsBounded) {
  YardCounts counts(/*projects_max=*/3);
  core::Delta delta;
  for (int64_t i = 1; i <= 100; ++i) {
    core::JobRecord job = Job(i, absl::StrCat("project-", i), core::job_fsm::Queued{});
    job.device_time_us = kSecondUs;
    delta.jobs.push_back(job);
  }
  counts.Take(delta, At(0));
  const Families families = counts.Collect(At(5), {});
  const auto queued = ValuesOf(families, "trainyard_queue_jobs");
  EXPECT_EQ(queued.size(), 4u);
  EXPECT_EQ(queued.at({{"project", "project-1"}}), 1);
  EXPECT_EQ(queued.at({{"project", kOtherProjects}}), 97);
  EXPECT_EQ(ValueOf(families, "trainyard_device_seconds_total", {{"project", kOtherProjects}}), 97);
  EXPECT_EQ(ValueOf(families, "trainyard_queue_oldest_wait_seconds", {{"project", kOtherProjects}}),
            5);
}

TEST(YardCounts, PrivateProjectsAreNotNamed) {
  YardCounts counts;
  core::Delta delta;
  delta.jobs = {Job(1, "secret", core::job_fsm::Queued{}),
                Job(2, "hidden", core::job_fsm::Queued{}),
                Job(3, "private", core::job_fsm::Queued{})};
  counts.Take(delta, At(0));
  const auto queued = ValuesOf(counts.Collect(At(5), {"secret", "hidden"}), "trainyard_queue_jobs");
  EXPECT_EQ(queued, (std::map<LabelMap, double>{{{{"project", "private"}}, 3}}))
      << "one that has the name of the label is added, so that no series is there twice";
}

TEST(YardCounts, CountersBeginAtZeroAndOnlyGrow) {
  core::Snapshot stored;
  core::JobRecord job = Job(1, "vision", core::job_fsm::Running{});
  job.retries = 3;
  job.device_time_us = 50 * kSecondUs;
  stored.jobs[job.id] = job;
  YardCounts counts;
  counts.Load(stored);
  Families families = counts.Collect(At(0), {});
  EXPECT_EQ(ValueOf(families, "trainyard_retries_total"), 0);
  EXPECT_EQ(ValueOf(families, "trainyard_device_seconds_total", {{"project", "vision"}}), 0);

  core::Delta delta;
  job.retries = 4;
  job.preemptions = 1;
  job.device_time_us = 57 * kSecondUs;
  delta.jobs = {job};
  counts.Take(delta, At(0));
  core::Delta deletion;
  deletion.deleted_jobs = {job.id};
  counts.Take(deletion, At(1));
  families = counts.Collect(At(1), {});
  EXPECT_EQ(ValueOf(families, "trainyard_retries_total"), 1);
  EXPECT_EQ(ValueOf(families, "trainyard_preemptions_total"), 1);
  EXPECT_EQ(ValueOf(families, "trainyard_device_seconds_total", {{"project", "vision"}}), 7)
      << "the deletion of a job takes nothing away";
}

TEST(YardCounts, EachFailureIsCountedOnce) {
  YardCounts counts;
  core::Delta delta;
  delta.attempts = {Attempt(1, core::attempt_fsm::Running{})};
  counts.Take(delta, At(0));
  core::Failure failure;
  failure.failure_class = core::FailureClass::kHardware;
  delta.attempts = {Attempt(1, core::attempt_fsm::Failed{failure}),
                    Attempt(2, core::attempt_fsm::Failed{failure})};
  counts.Take(delta, At(1));
  counts.Take(delta, At(2));
  const Families families = counts.Collect(At(2), {});
  EXPECT_EQ(ValueOf(families, "trainyard_attempt_failures_total", {{"class", "hardware"}}), 1)
      << "jobs/2 was imported: it has never run here";
  EXPECT_EQ(ValueOf(families, "trainyard_attempt_failures_total", {{"class", "lost"}}), 0);
}

TEST(YardCounts, TheAgeOfCheckpointsIsThatOfTheJobThatHasMostToLose) {
  YardCounts counts;
  core::Delta delta;
  core::JobRecord program = Job(2, "", core::job_fsm::Running{});
  auto submission = std::make_shared<core::Submission>(*program.submission);
  submission->work.length = 0;
  program.submission = submission;
  delta.jobs = {Job(1, "", core::job_fsm::Running{}), program};
  delta.attempts = {Attempt(1, core::attempt_fsm::Running{}),
                    Attempt(2, core::attempt_fsm::Running{})};
  counts.Take(delta, At(0));
  EXPECT_EQ(ValueOf(counts.Collect(At(70), {}), "trainyard_checkpoint_oldest_age_seconds"), 70);

  core::Delta commit;
  core::CheckpointRecord checkpoint;
  checkpoint.id = {JobId{1}, 100};
  checkpoint.create_us = kStartUs + 60 * kSecondUs;
  commit.checkpoints = {checkpoint};
  core::EventRecord event;
  event.type = "CHECKPOINT_COMMITTED";
  commit.events = {event};
  counts.Take(commit, At(60));
  Families families = counts.Collect(At(70), {});
  EXPECT_EQ(ValueOf(families, "trainyard_checkpoint_oldest_age_seconds"), 10);
  EXPECT_EQ(ValueOf(families, "trainyard_checkpoints_committed_total"), 1);

  delta.attempts = {Attempt(1, core::attempt_fsm::Succeeded{})};
  counts.Take(delta, At(80));
  EXPECT_EQ(ValueOf(counts.Collect(At(900), {}), "trainyard_checkpoint_oldest_age_seconds"), 0);
}

TEST(YardCounts, EachDeviceHasOneState) {
  YardCounts counts;
  core::Delta delta;
  core::WorkerRecord lab = Worker("lab-1", 3);
  lab.devices[1].quarantine = "it burns";
  core::WorkerRecord drained = Worker("lab-2", 2);
  drained.scheduling = core::Scheduling::kDraining;
  core::WorkerRecord away = Worker("lab-3", 4);
  away.state = core::worker_fsm::Unreachable{};
  delta.workers = {lab, drained, away};
  delta.attempts = {Attempt(1, core::attempt_fsm::Running{})};
  counts.Take(delta, At(0));
  Families families = counts.Collect(At(0), {});
  const auto devices = ValuesOf(families, "trainyard_devices");
  EXPECT_EQ(devices.at({{"state", "busy"}}), 1);
  EXPECT_EQ(devices.at({{"state", "quarantined"}}), 1);
  EXPECT_EQ(devices.at({{"state", "free"}}), 1);
  EXPECT_EQ(devices.at({{"state", "draining"}}), 2);
  EXPECT_EQ(devices.at({{"state", "offline"}}), 4);
  const auto workers = ValuesOf(families, "trainyard_workers");
  EXPECT_EQ(workers.at({{"state", "active"}}), 1);
  EXPECT_EQ(workers.at({{"state", "draining"}}), 1);
  EXPECT_EQ(workers.at({{"state", "unreachable"}}), 1);

  delta = {};
  delta.attempts = {Attempt(1, core::attempt_fsm::Succeeded{})};
  delta.deleted_workers = {"lab-3"};
  counts.Take(delta, At(1));
  families = counts.Collect(At(1), {});
  EXPECT_EQ(ValueOf(families, "trainyard_devices", {{"state", "free"}}), 2);
  EXPECT_EQ(ValueOf(families, "trainyard_devices", {{"state", "offline"}}), 0);
}

}  // namespace
}  // namespace trainyard::metrics
