// Tests what every store promises, with the same cases for memory and SQLite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "server/codec/progress.h"
#include "server/codec/submission.h"
#include "server/store/memory_store.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/testing/resolved_spec.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

using core::AttemptRecord;
using core::CheckpointRecord;
using core::Delta;
using core::EventRecord;
using core::Failure;
using core::FailureClass;
using core::JobRecord;
using core::Snapshot;
using core::StopReason;
using core::Submission;
using core::WorkerRecord;
using ::testing::ElementsAre;

enum class Kind { kMemory, kSqlite };

class StoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  StoreContract() { Open(); }

  void Open() {
    if (GetParam() == Kind::kMemory) {
      store_ = std::make_unique<MemoryStore>();
      return;
    }
    auto store = OpenSqliteStore(directory_.File("state.db"));
    TY_CHECK_OK(store.status());
    store_ = *std::move(store);
  }

  // A store in memory forgets, so only files are opened again.
  void Reopen() {
    if (GetParam() == Kind::kMemory) return;
    store_ = nullptr;
    Open();
  }

  // Returns the next revision, without changes.
  Delta Next() {
    const Snapshot snapshot = Load();
    Delta delta;
    delta.revision = snapshot.revision + 1;
    delta.next_job = snapshot.next_job;
    delta.next_event = 1000;
    return delta;
  }

  // Commits these jobs, all of which are new, and opens the store again.
  void CommitNew(std::vector<JobRecord> jobs) {
    Delta delta = Next();
    delta.next_job = jobs.back().id.value + 1;
    delta.jobs = std::move(jobs);
    TY_CHECK_OK(store_->Commit(delta));
    Reopen();
  }

  Snapshot Load() {
    auto snapshot = store_->Load();
    TY_CHECK_OK(snapshot.status());
    return *std::move(snapshot);
  }

  std::vector<int64_t> Sequences(absl::string_view parent, int64_t after, int64_t limit) {
    const auto page = store_->ListEvents(parent, after, limit);
    TY_CHECK_OK(page.status());
    std::vector<int64_t> sequences;
    for (const EventRecord& event : *page) sequences.push_back(event.sequence);
    return sequences;
  }

  static std::shared_ptr<const Submission> Resolved(Submission submission) {
    testing::SetResolvedSpec(submission);
    return std::make_shared<const Submission>(std::move(submission));
  }

  static JobRecord Job(int64_t number) {
    Submission submission;
    submission.uid = absl::StrCat("uid-", number);
    submission.name = "convnet";
    submission.user = "anna";
    submission.spec = std::string("\0\x01\xff spec", 8);
    submission.demand.count = 3;
    submission.demand.type = "gtx-1080";
    submission.demand.mixed = true;
    submission.priority = -7;
    submission.max_retries = 3;
    submission.time_limit_us = 3'600'000'000;
    submission.disconnect_keep_us = 600'000'000;
    submission.checkpoints_kept = 2;
    submission.server_version = "0.1.0";
    JobRecord job;
    job.id = JobId{number};
    job.submission = Resolved(submission);
    job.state = core::job_fsm::Queued{};
    job.create_us = 1'790'000'000'000'000;
    return job;
  }

  static EventRecord Event(int64_t sequence, const std::string& resource) {
    return {sequence, 1'790'000'000'000'000 + sequence, resource, "JOB_QUEUED", "user:anna", "why"};
  }

  trainyard::testing::TempDir directory_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreContract, ANewStoreIsEmpty) {
  EXPECT_EQ(Load(), Snapshot{});
  EXPECT_TRUE(Sequences("", 0, 10).empty());
}

TEST_P(StoreContract, EveryJobStateComesBack) {
  const Failure failure{FailureClass::kTransient, "PEER_LOST", "rank 1: peer lost \xe2\x80\x94 ok"};
  const core::JobState states[] = {
      core::job_fsm::Queued{},
      core::job_fsm::Queued{1'790'000'000'000'001, failure},
      core::job_fsm::Starting{},
      core::job_fsm::Running{},
      core::job_fsm::Stopping{StopReason::kTimeLimit, "time limit of 1h reached"},
      core::job_fsm::Suspended{},
      core::job_fsm::Suspended{failure},
      core::job_fsm::Succeeded{},
      core::job_fsm::Failed{failure},
      core::job_fsm::Cancelled{}};
  std::vector<JobRecord> jobs;
  for (const core::JobState& state : states) {
    jobs.push_back(Job(static_cast<int64_t>(jobs.size()) + 1));
    jobs.back().state = state;
  }
  CommitNew(jobs);
  const Snapshot loaded = Load();
  ASSERT_EQ(loaded.jobs.size(), jobs.size());
  for (const JobRecord& job : jobs) EXPECT_EQ(loaded.jobs.at(job.id), job);
}

TEST_P(StoreContract, EveryFieldOfAJobComesBack) {
  JobRecord job = Job(12);
  Submission submission = *job.submission;
  submission.cloned_from = JobId{3};
  submission.parent_checkpoint = core::CheckpointRef{JobId{3}, 0};
  v1::CodeOrigin origin;
  origin.set_commit("0123abcd");
  origin.set_diff_digest("sha256:00");
  codec::TakeCodeOrigin(origin, submission);
  submission.demand.min_count = 2;
  submission.demand.memory_bytes = int64_t{40} << 30;
  submission.demand.labels = {{"rack", "r1"}, {"zone", ""}};
  submission.demand.spread = true;
  submission.project = "vision";
  submission.tags = {"paper", "2026/autumn"};
  submission.dependencies = {{JobId{5}, true}, {JobId{4}, false}};
  submission.not_before_us = 1'790'000'000'000'002;
  submission.time_limit_warning_us = 300'000'000;
  submission.reservation = "friday";
  submission.preemptible = false;
  submission.array_size = 8;
  submission.array_parallel = 4;
  submission.keeps_best = true;
  submission.judged_by_loss = true;
  submission.auto_precision = true;
  job.submission = Resolved(submission);
  job.stop_reason = StopReason::kDrain;
  job.attempt = 4;
  job.fencing_token = 5;
  job.retries = 1;
  job.failures = 2;
  job.run_time_us = 77;
  job.start_us = 78;
  job.end_us = 79;
  v1::Progress report;
  report.set_step(120);
  report.set_total_steps(936);
  report.set_samples_per_s(std::numeric_limits<double>::quiet_NaN());
  report.mutable_eta()->set_seconds(5);
  report.add_hosting()->set_samples_per_s(4050.123456789);
  report.set_hosting_reason("speeds of steps 3 to 10");
  job.progress = codec::EncodeProgress(report);
  job.metrics.values = {{"test.accuracy", 0.91},
                        {"test.loss", std::numeric_limits<double>::infinity()},
                        {"train.loss", std::numeric_limits<double>::quiet_NaN()}};
  job.data_digest = "glyphs-v1:1";
  job.model_digest = "xxh3-128:2";
  job.worker_version = "0.1.1";
  job.revision = 9;
  job.array = job.id;
  job.device_time_us = 80;
  job.preemptions = 6;
  job.precision = core::Precision::kBf16;
  CommitNew({job});
  EXPECT_EQ(Load().jobs.at(job.id), job);
  EXPECT_EQ(Load().next_job, 13);
  EXPECT_EQ(Load().next_event, 1000);
}

TEST_P(StoreContract, TheJobsOfAnArrayShareOneSubmission) {
  std::vector<JobRecord> jobs = {Job(1), Job(2), Job(3), Job(4)};
  for (size_t i = 1; i < jobs.size(); ++i) {
    jobs[i].array = JobId{2};
    jobs[i].submission = jobs[1].submission;
  }
  CommitNew(jobs);
  Delta change = Next();
  change.jobs = {jobs[3]};
  change.jobs[0].state = core::job_fsm::Cancelled{};
  ASSERT_TRUE(store_->Commit(change).ok());
  Reopen();
  const Snapshot loaded = Load();
  EXPECT_EQ(loaded.jobs.at(JobId{1}), jobs[0]);
  EXPECT_EQ(loaded.jobs.at(JobId{3}), jobs[2]);
  EXPECT_EQ(loaded.jobs.at(JobId{4}), change.jobs[0]);
  EXPECT_EQ(loaded.jobs.at(JobId{4}).submission, loaded.jobs.at(JobId{2}).submission);
  EXPECT_NE(loaded.jobs.at(JobId{1}).submission, loaded.jobs.at(JobId{2}).submission);
}

TEST_P(StoreContract, EveryAttemptStateAndPartComesBack) {
  const Failure failure{FailureClass::kHardware, "XID_79", "GPU has fallen off the bus"};
  const core::AttemptState states[] = {core::attempt_fsm::Placed{},
                                       core::attempt_fsm::Starting{},
                                       core::attempt_fsm::Running{},
                                       core::attempt_fsm::Stopping{StopReason::kNone, failure},
                                       core::attempt_fsm::Stopping{StopReason::kCancel, {}},
                                       core::attempt_fsm::Succeeded{},
                                       core::attempt_fsm::Failed{failure},
                                       core::attempt_fsm::Preempted{StopReason::kSuspend},
                                       core::attempt_fsm::Cancelled{},
                                       core::attempt_fsm::Lost{failure}};
  Delta delta = Next();
  delta.jobs = {Job(1)};
  int32_t number = 0;
  for (const core::AttemptState& state : states) {
    AttemptRecord attempt;
    attempt.id = {JobId{1}, ++number};
    attempt.fencing_token = number;
    attempt.state = state;
    attempt.ranks = {{0, "lab-1", "cpu-0", {4, int64_t{8} << 30}}, {1, "lab-2", ""}};
    attempt.parts = {
        {"lab-1", core::PartState::kRunning, {}},
        {"lab-2", core::PartState::kExited, {core::OutcomeKind::kFailed, failure, 40, 1}}};
    if (number > 1) attempt.resume_from = core::CheckpointRef{JobId{1}, 30};
    attempt.create_us = 1;
    attempt.start_us = 2;
    attempt.end_us = 3;
    attempt.isolation = core::Isolation::kSandbox;
    attempt.guest_of = JobId{7};
    delta.attempts.push_back(attempt);
  }
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  const Snapshot loaded = Load();
  ASSERT_EQ(loaded.attempts.size(), delta.attempts.size());
  for (const AttemptRecord& attempt : delta.attempts) {
    EXPECT_EQ(loaded.attempts.at(attempt.id), attempt);
  }
}

WorkerRecord SomeWorker(const std::string& name) {
  WorkerRecord worker;
  worker.name = name;
  worker.uid = "uid";
  worker.version = "0.1.0";
  worker.hostname = "host";
  worker.address = "10.0.0.1";
  worker.scheduling = core::Scheduling::kDraining;
  core::DeviceRecord cpu;
  cpu.name = "cpu-10";
  cpu.type = "cpu";
  cpu.cpus = {0, 1};
  cpu.threads = 2;
  core::DeviceRecord gpu;
  gpu.name = "GPU-1";
  gpu.type = "h200";
  gpu.memory_bytes = int64_t{139} << 30;
  gpu.health = core::DeviceHealth::kQuarantined;
  gpu.health_reason = "Xid 79";
  gpu.product = "NVIDIA H200";
  gpu.island = 3;
  gpu.quarantine = "it is hot";
  gpu.bf16 = true;
  worker.devices = {cpu, gpu};
  worker.host = {64, int64_t{512} << 30};
  worker.labels = {{"rack", "r1"}, {"zone", ""}};
  worker.failed_jobs = {JobId{9}, JobId{4}};
  worker.create_us = 1;
  worker.last_seen_us = 2;
  worker.revision = 3;
  return worker;
}

TEST_P(StoreContract, WorkersComeBackWithTheirDevicesInOrder) {
  const core::WorkerState states[] = {core::worker_fsm::Active{}, core::worker_fsm::Unreachable{5},
                                      core::worker_fsm::Gone{6}};
  Delta delta = Next();
  int number = 0;
  for (const core::WorkerState& state : states) {
    WorkerRecord worker = SomeWorker(absl::StrCat("lab-", ++number));
    worker.state = state;
    delta.workers.push_back(worker);
  }
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  for (const WorkerRecord& worker : delta.workers)
    EXPECT_EQ(Load().workers.at(worker.name), worker);

  Delta fewer = Next();
  fewer.workers = {delta.workers[0]};
  fewer.workers[0].devices.pop_back();
  fewer.workers[0].labels = {{"rack", "r2"}};
  fewer.workers[0].failed_jobs = {JobId{4}};
  ASSERT_TRUE(store_->Commit(fewer).ok());
  EXPECT_EQ(Load().workers.at("lab-1"), fewer.workers[0]);
  EXPECT_EQ(Load().workers.at("lab-2"), delta.workers[1]);
}

TEST_P(StoreContract, CheckpointsComeAndGo) {
  CheckpointRecord checkpoint;
  checkpoint.id = {JobId{1}, 312};
  checkpoint.attempt = 2;
  checkpoint.files = {{"model.safetensors", 1234, "xxh3-128:1"}, {"state.json", 5, "xxh3-128:2"}};
  checkpoint.create_us = 7;
  Delta delta = Next();
  delta.jobs = {Job(1)};
  delta.checkpoints = {checkpoint};
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  EXPECT_EQ(Load().checkpoints.at(checkpoint.id), checkpoint);

  checkpoint.damage = "model.safetensors is missing";
  Delta damaged = Next();
  damaged.checkpoints = {checkpoint};
  ASSERT_TRUE(store_->Commit(damaged).ok());
  Reopen();
  EXPECT_EQ(Load().checkpoints.at(checkpoint.id), checkpoint);
  checkpoint.damage.clear();

  for (const auto& [copy, failure] : std::vector<std::pair<std::string, std::string>>{
           {"", "the bucket is away"}, {"s3://lab/checkpoints/1/312", ""}}) {
    checkpoint.copy = copy;
    checkpoint.copy_failure = failure;
    Delta copied = Next();
    copied.checkpoints = {checkpoint};
    ASSERT_TRUE(store_->Commit(copied).ok());
    Reopen();
    EXPECT_EQ(Load().checkpoints.at(checkpoint.id), checkpoint);
  }

  Delta removal = Next();
  removal.deleted_checkpoints = {checkpoint.id};
  ASSERT_TRUE(store_->Commit(removal).ok());
  EXPECT_TRUE(Load().checkpoints.empty());

  // The same step is committed again, with other files and an evaluation.
  checkpoint.files.pop_back();
  checkpoint.evaluation = {0.1 + 0.2, 0.91};
  Delta again = Next();
  again.checkpoints = {checkpoint};
  ASSERT_TRUE(store_->Commit(again).ok());
  EXPECT_EQ(Load().checkpoints.at(checkpoint.id), checkpoint);
}

TEST_P(StoreContract, AJobGoesWithItsAttemptsAndItsHistory) {
  Delta delta = Next();
  delta.next_job = 3;
  delta.jobs = {Job(1), Job(2)};
  for (JobRecord& job : delta.jobs) {
    job.attempt = 1;
    job.metrics.values = {{"lr", 0.1}};
    AttemptRecord attempt;
    attempt.id = {job.id, 1};
    attempt.ranks = {{0, "lab-1", "cpu-0"}};
    attempt.parts = {{"lab-1", core::PartState::kExited, {}}};
    delta.attempts.push_back(attempt);
  }
  CheckpointRecord checkpoint;
  checkpoint.id = {JobId{1}, 10};
  checkpoint.files = {{"state.json", 5, "xxh3-128:2"}};
  delta.checkpoints = {checkpoint};
  delta.events = {Event(1, "jobs/1"), Event(2, "jobs/1/attempts/1"), Event(3, "jobs/2")};
  ASSERT_TRUE(store_->Commit(delta).ok());

  Delta removal = Next();
  removal.deleted_jobs = {JobId{1}};
  removal.kept_submissions = {JobId{1}};
  removal.events = {Event(4, "jobs/1")};
  ASSERT_TRUE(store_->Commit(removal).ok());
  Reopen();
  Snapshot loaded = Load();
  EXPECT_EQ(loaded.jobs.size(), 1u);
  EXPECT_EQ(loaded.attempts.size(), 1u);
  EXPECT_EQ(loaded.kept_submissions.at(JobId{1}), *Job(1).submission);
  EXPECT_EQ(loaded.checkpoints.at(checkpoint.id), checkpoint) << "it may outlive its job";
  EXPECT_THAT(Sequences("jobs/1", 0, 10), ElementsAre(4));
  EXPECT_THAT(Sequences("jobs/2", 0, 10), ElementsAre(3));

  Delta rest = Next();
  rest.deleted_submissions = {JobId{1}, JobId{2}};
  rest.deleted_jobs = {JobId{2}};
  ASSERT_TRUE(store_->Commit(rest).ok());
  Reopen();
  loaded = Load();
  EXPECT_TRUE(loaded.jobs.empty());
  EXPECT_TRUE(loaded.kept_submissions.empty());
}

TEST_P(StoreContract, RequestsComeBack) {
  Delta delta = Next();
  delta.jobs = {Job(1)};
  delta.requests = {{"r1", "hash", JobId{1}, 5}};
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  EXPECT_EQ(Load().requests.at("r1"), delta.requests[0]);
}

TEST_P(StoreContract, ALaterRowReplacesAnEarlierOne) {
  JobRecord job = Job(1);
  job.attempt = 1;
  job.metrics.values = {{"train.loss", 2.0}, {"lr", 0.1}};
  CommitNew({job});
  Delta change = Next();
  change.jobs = {job};
  change.jobs[0].state = core::job_fsm::Running{};
  change.jobs[0].metrics.values = {{"train.loss", 1.0}};
  ASSERT_TRUE(store_->Commit(change).ok());
  Reopen();
  EXPECT_EQ(Load().jobs.at(JobId{1}), change.jobs[0]);
}

TEST_P(StoreContract, WorkersComeAndGo) {
  Delta delta = Next();
  delta.workers = {SomeWorker("lab-1"), SomeWorker("lab-2")};
  ASSERT_TRUE(store_->Commit(delta).ok());

  Delta change = Next();
  change.deleted_workers = {"lab-1"};
  ASSERT_TRUE(store_->Commit(change).ok());
  Reopen();
  EXPECT_EQ(Load().workers.size(), 1u);
  EXPECT_EQ(Load().workers.at("lab-2").devices, delta.workers[1].devices);

  Delta again = Next();
  again.workers = {SomeWorker("lab-1")};
  ASSERT_TRUE(store_->Commit(again).ok());
  Reopen();
  EXPECT_EQ(Load().workers.size(), 2u);
}

TEST_P(StoreContract, QuotasComeAndGo) {
  Delta delta = Next();
  delta.quotas = {{"project:vision", 1, 2, 3, int64_t{4} << 40, 5, {6, 7}},
                  {"user:*", 6, 0, 0, 0, 0}};
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  EXPECT_EQ(Load().quotas.size(), 2u);
  EXPECT_EQ(Load().quotas.at("project:vision"), delta.quotas[0]);

  Delta change = Next();
  change.quotas = {{"user:*", 7, 0, 0, 0, 2}};
  change.deleted_quotas = {"project:vision", "user:nobody"};
  ASSERT_TRUE(store_->Commit(change).ok());
  Reopen();
  EXPECT_EQ(Load().quotas.size(), 1u);
  EXPECT_EQ(Load().quotas.at("user:*"), change.quotas[0]);
}

TEST_P(StoreContract, ReservationsComeAndGo) {
  Delta delta = Next();
  delta.reservations = {
      {"demo", 1, 2, {{"lab-1", "GPU-0"}, {"lab-2", "GPU-1"}}, {"user:b", "user:a"}, "user:anna"},
      {"empty", 3, 4, {}, {}, ""}};
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  EXPECT_EQ(Load().reservations.at("demo"), delta.reservations[0]);
  EXPECT_EQ(Load().reservations.at("empty"), delta.reservations[1]);

  Delta change = Next();
  change.reservations = {{"demo", 1, 9, {{"lab-2", "GPU-1"}}, {"project:vision"}, "user:bob"}};
  change.deleted_reservations = {"empty"};
  ASSERT_TRUE(store_->Commit(change).ok());
  Reopen();
  EXPECT_EQ(Load().reservations.size(), 1u);
  EXPECT_EQ(Load().reservations.at("demo"), change.reservations[0]);
}

TEST_P(StoreContract, UsageIsReplacedAsAWhole) {
  Delta delta = Next();
  delta.usage_changed = true;
  delta.usage = {{"", "anna", 5}, {"vision", "anna", int64_t{6} << 40}};
  delta.pool_time_us = 77;
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  EXPECT_EQ(Load().usage.size(), 2u);
  EXPECT_EQ(Load().usage.at({"vision", "anna"}), delta.usage[1]);
  EXPECT_EQ(Load().pool_time_us, 77);

  Delta same = Next();
  same.pool_time_us = 78;
  ASSERT_TRUE(store_->Commit(same).ok());
  Reopen();
  EXPECT_EQ(Load().usage.size(), 2u) << "nothing was said of it";
  EXPECT_EQ(Load().pool_time_us, 78);

  Delta change = Next();
  change.usage_changed = true;
  change.usage = {{"", "bob", 1}};
  ASSERT_TRUE(store_->Commit(change).ok());
  Reopen();
  EXPECT_EQ(Load().usage.size(), 1u);
  EXPECT_EQ(Load().usage.at({"", "bob"}), change.usage[0]);
}

TEST_P(StoreContract, RevisionsGrowByOne) {
  ASSERT_TRUE(store_->Commit(Next()).ok());
  EXPECT_EQ(Load().revision, 1);
  for (const int64_t wrong : {int64_t{0}, int64_t{1}, int64_t{3}}) {
    Delta delta = Next();
    delta.revision = wrong;
    EXPECT_EQ(store_->Commit(delta).code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(Load().revision, 1);
}

TEST_P(StoreContract, AFailingCommitLeavesNothing) {
  Delta first = Next();
  first.jobs = {Job(1)};
  first.next_job = 4;
  first.requests = {{"r1", "hash", JobId{1}, 5}};
  first.events = {Event(1, "jobs/1")};
  ASSERT_TRUE(store_->Commit(first).ok());
  const Snapshot before = Load();

  Delta orphan = Next();
  orphan.jobs = {Job(4)};
  orphan.events = {Event(2, "jobs/4")};
  AttemptRecord attempt;
  attempt.id = {JobId{99}, 1};
  orphan.attempts = {attempt};
  EXPECT_FALSE(store_->Commit(orphan).ok()) << "the attempt of no job";

  Delta skipped = Next();
  skipped.jobs = {Job(3)};
  EXPECT_FALSE(store_->Commit(skipped).ok()) << "a job that is neither new nor stored";

  Delta old_event = Next();
  old_event.jobs = {Job(4)};
  old_event.events = {Event(1, "jobs/4")};
  EXPECT_FALSE(store_->Commit(old_event).ok()) << "an event that is stored already";

  EXPECT_EQ(Load(), before);
  Reopen();
  EXPECT_EQ(Load(), before);
  EXPECT_THAT(Sequences("", 0, 10), ElementsAre(1));
  Delta next = Next();
  next.jobs = {Job(4)};
  EXPECT_TRUE(store_->Commit(next).ok()) << "and the store goes on";
}

TEST_P(StoreContract, EventsArePagedByResource) {
  Delta delta = Next();
  delta.events = {Event(1, "jobs/1"), Event(2, "jobs/1/attempts/1"), Event(3, "workers/lab-1"),
                  Event(4, "jobs/12"), Event(5, "jobs/1")};
  ASSERT_TRUE(store_->Commit(delta).ok());
  Reopen();
  EXPECT_THAT(Sequences("jobs/1", 0, 10), ElementsAre(1, 2, 5));
  EXPECT_THAT(Sequences("jobs/1", 0, 2), ElementsAre(1, 2));
  EXPECT_THAT(Sequences("jobs/1", 2, 2), ElementsAre(5));
  EXPECT_THAT(Sequences("jobs/1", 5, 2), ElementsAre());
  EXPECT_THAT(Sequences("workers/lab-1", 0, 10), ElementsAre(3));
  EXPECT_THAT(Sequences("", 1, 3), ElementsAre(2, 3, 4));
  EXPECT_THAT(Sequences("", 0, 0), ElementsAre());
  const auto page = store_->ListEvents("jobs/1", 1, 1);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ((*page)[0], delta.events[1]);
}

TEST_P(StoreContract, APageOfEventsHasALimit) {
  Delta delta = Next();
  for (int64_t i = 1; i <= kEventPageMax + 5; ++i) delta.events.push_back(Event(i, "jobs/1"));
  ASSERT_TRUE(store_->Commit(delta).ok());
  EXPECT_EQ(Sequences("jobs/1", 0, 1'000'000).size(), static_cast<size_t>(kEventPageMax));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract, ::testing::Values(Kind::kMemory, Kind::kSqlite),
                         [](const auto& tested) {
                           return tested.param == Kind::kMemory ? "Memory" : "Sqlite";
                         });

}  // namespace
}  // namespace trainyard::store
