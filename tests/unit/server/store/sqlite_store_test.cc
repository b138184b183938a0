// Tests the errors that only a file can have, and the format of the file. The promises of a store
// are in tests/contract.
#include "server/store/sqlite/sqlite_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/codec/progress.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/sqlite_metrics_store.h"
#include "tests/testing/paths.h"
#include "tests/testing/resolved_spec.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

// The content of tests/data/store/state_v1.db, which the last server of version 1 wrote.
core::Delta WrittenByVersion1() {
  const core::Failure failure{core::FailureClass::kTransient, "PEER_LOST", "rank 1: peer lost"};
  const core::JobState states[] = {core::job_fsm::Queued{1'790'000'000'000'001, failure},
                                   core::job_fsm::Running{},
                                   core::job_fsm::Stopping{core::StopReason::kDrain, "by anna"},
                                   core::job_fsm::Suspended{}, core::job_fsm::Failed{failure}};
  core::Delta delta;
  delta.revision = 1;
  for (const core::JobState& state : states) {
    core::Submission submission;
    submission.uid = absl::StrCat("uid-", delta.next_job);
    submission.name = "convnet";
    submission.user = "anna";
    submission.spec = std::string("\0\x01\xff spec", 8);
    submission.demand.count = 2;
    submission.demand.type = "gtx-1080";
    submission.demand.mixed = true;
    submission.priority = -7;
    submission.max_retries = 3;
    submission.time_limit_us = 3'600'000'000;
    submission.disconnect_keep_us = 600'000'000;
    submission.checkpoints_kept = 2;
    submission.cloned_from = JobId{7};
    submission.parent_checkpoint = core::CheckpointRef{JobId{7}, 30};
    submission.server_version = "0.1.0";
    testing::SetResolvedSpec(submission);
    core::JobRecord job;
    job.id = JobId{delta.next_job++};
    job.submission = std::make_shared<core::Submission>(submission);
    job.state = state;
    job.attempt = 1;
    job.fencing_token = 1;
    job.failures = 1;
    job.run_time_us = 77;
    job.create_us = 1'790'000'000'000'000;
    job.start_us = 78;
    v1::Progress report;
    report.set_step(120);
    report.set_total_steps(936);
    report.set_epoch(1);
    report.set_epochs(3);
    report.set_samples_per_s(250.5);
    report.set_data_wait_fraction(0.01);
    report.mutable_eta()->set_seconds(5);
    job.progress = codec::EncodeProgress(report);
    job.metrics.values = {{"test.accuracy", 0.91}, {"train.loss", 0.4}};
    job.data_digest = "glyphs-v1:1";
    job.worker_version = "0.1.0";
    job.revision = 1;
    delta.jobs.push_back(job);

    core::AttemptRecord attempt;
    attempt.id = {job.id, 1};
    attempt.fencing_token = 1;
    attempt.state = core::attempt_fsm::Running{};
    attempt.ranks = {{0, "lab-1", "cpu-0"}, {1, "lab-2", "cpu-0"}};
    attempt.parts = {
        {"lab-1", core::PartState::kRunning, {}},
        {"lab-2", core::PartState::kExited, {core::OutcomeKind::kFailed, failure, 40, 1}}};
    attempt.resume_from = core::CheckpointRef{job.id, 30};
    attempt.create_us = 76;
    delta.attempts.push_back(attempt);
    delta.checkpoints.push_back({{job.id, 120}, 1, {{"model.safetensors", 9, "xxh3-128:1"}}, 79});
    delta.requests.push_back({absl::StrCat("request-", job.id.value), "hash", job.id, 75});
    delta.events.push_back(
        {delta.next_event++, 75, JobName(job.id), "JOB_QUEUED", "user:anna", "submitted"});
  }
  core::WorkerRecord worker;
  worker.name = "lab-1";
  worker.uid = "uid";
  worker.version = "0.1.0";
  worker.hostname = "host";
  worker.address = "10.0.0.1";
  worker.state = core::worker_fsm::Unreachable{5};
  worker.scheduling = core::Scheduling::kCordoned;
  core::DeviceRecord device;
  device.name = "cpu-0";
  device.type = "cpu";
  device.memory_bytes = 1000;
  device.health = core::DeviceHealth::kUnmanagedUse;
  device.health_reason = "pid 7";
  device.cpus = {0, 1};
  device.threads = 2;
  device.product = "EPYC";
  worker.devices = {device};
  worker.create_us = 1;
  worker.last_seen_us = 2;
  worker.revision = 1;
  delta.workers = {worker};
  return delta;
}

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.File("state.db"); }

  // Opens the store's file directly, without the store.
  void Tamper(const std::string& sql) {
    auto db = Database::Open(path(), Database::Mode::kDurable);
    TY_CHECK_OK(db.status());
    TY_CHECK_OK((*db)->Execute(sql));
  }

  core::Delta OneJob() {
    core::JobRecord job;
    job.id = JobId{1};
    core::Submission submission;
    submission.name = "convnet";
    submission.spec = std::string(20'000, 's');
    testing::SetResolvedSpec(submission);
    job.submission = std::make_shared<core::Submission>(submission);
    core::Delta delta;
    delta.revision = 1;
    delta.next_job = 2;
    delta.jobs = {job};
    return delta;
  }

  trainyard::testing::TempDir directory_;
};

TEST_F(SqliteStoreTest, AStoreOfANewerServerIsRefused) {
  ASSERT_TRUE(OpenSqliteStore(path()).ok());
  Tamper("INSERT INTO schema_version (version, kind) VALUES (999, 'state')");
  const auto store = OpenSqliteStore(path());
  EXPECT_EQ(ErrorReason(store.status()), "STORE_TOO_NEW");
  EXPECT_NE(store.status().message().find("has version 999"), absl::string_view::npos);
}

TEST_F(SqliteStoreTest, AStoreOfVersion1OpensAndKeepsEverything) {
  const auto kept = ReadFile(testing::SourcePath("tests/data/store/state_v1.db"));
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(WriteFileAtomically(path(), *kept).ok());
  const core::Delta expected = WrittenByVersion1();
  core::Delta change;
  change.revision = 2;
  change.next_job = expected.next_job + 1;
  change.next_event = expected.next_event;
  change.jobs = {expected.jobs[0], OneJob().jobs[0]};
  change.jobs[0].state = core::job_fsm::Cancelled{};
  change.jobs[1].id = JobId{expected.next_job};
  for (const bool is_first : {true, false}) {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok()) << store.status();
    const auto snapshot = (*store)->Load();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    for (size_t i = is_first ? 0 : 1; i < expected.jobs.size(); ++i) {
      const JobId job = expected.jobs[i].id;
      EXPECT_EQ(snapshot->jobs.at(job), expected.jobs[i]);
      EXPECT_EQ(snapshot->attempts.at({job, 1}), expected.attempts[i]);
      EXPECT_EQ(snapshot->checkpoints.at({job, 120}), expected.checkpoints[i]);
      EXPECT_EQ(snapshot->requests.at(expected.requests[i].request_id), expected.requests[i]);
    }
    EXPECT_EQ(snapshot->workers.at("lab-1"), expected.workers[0]);
    EXPECT_EQ(*(*store)->ListEvents("", 0, 100), expected.events);
    if (is_first) {
      EXPECT_EQ(snapshot->jobs.size(), expected.jobs.size());
      EXPECT_EQ(snapshot->next_job, expected.next_job);
      ASSERT_TRUE((*store)->Commit(change).ok()) << "and the store goes on";
    } else {
      EXPECT_EQ(snapshot->jobs.at(change.jobs[0].id), change.jobs[0]);
      EXPECT_EQ(snapshot->jobs.at(change.jobs[1].id), change.jobs[1]);
    }
  }
}

// tests/data/store/state_v4.db was written by the last server of version 4: jobs/1 has run, jobs/2
// to jobs/4 are an array that waits for it, jobs/5 is a clone of jobs/1 that waits for jobs/2, and
// jobs/6 is a network that predicts tokens.
TEST_F(SqliteStoreTest, AStoreOfVersion4OpensAndReadsSubmissionsFromTheirSpecs) {
  const auto kept = ReadFile(testing::SourcePath("tests/data/store/state_v4.db"));
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(WriteFileAtomically(path(), *kept).ok());
  auto store = OpenSqliteStore(path());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto snapshot = (*store)->Load();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  ASSERT_EQ(snapshot->jobs.size(), 6u);
  const auto job = [&](int64_t number) -> const core::JobRecord& {
    return snapshot->jobs.at(JobId{number});
  };
  const auto submission = [&](int64_t number) -> const core::Submission& {
    return *job(number).submission;
  };

  EXPECT_EQ(submission(1).uid, "51353d50-389b-4352-942e-6d8516c34b60");
  EXPECT_EQ(submission(1).name, "mlp-glyphs");
  EXPECT_EQ(submission(1).user, "root");
  EXPECT_EQ(submission(1).project, "vision");
  EXPECT_EQ(submission(1).priority, 5);
  EXPECT_EQ(submission(1).max_retries, 3);
  EXPECT_FALSE(submission(1).preemptible);
  EXPECT_EQ(submission(1).time_limit_us, 7'200'000'000);
  EXPECT_EQ(submission(1).time_limit_warning_us, 300'000'000);
  EXPECT_EQ(submission(1).disconnect_keep_us, 600'000'000);
  EXPECT_EQ(submission(1).checkpoints_kept, 2);
  EXPECT_TRUE(submission(1).keeps_best);
  EXPECT_FALSE(submission(1).judged_by_loss);
  EXPECT_EQ(submission(1).demand.labels.at("zone"), "a");
  EXPECT_TRUE(std::holds_alternative<core::job_fsm::Succeeded>(job(1).state));
  const v1::Progress report = codec::DecodeProgress(job(1).progress);
  EXPECT_EQ(job(1).progress.step, 79);
  EXPECT_EQ(report.total_steps(), 79);
  EXPECT_EQ(report.epochs(), 1);
  ASSERT_EQ(report.hosting_size(), 1);
  EXPECT_EQ(report.hosting(0).replicas(), 1);
  EXPECT_EQ(report.hosting_reason(), "one rank computes all");
  EXPECT_EQ(job(1).metrics.values.at("test.accuracy"), 0.30625);

  EXPECT_EQ(job(3).submission, job(2).submission);
  EXPECT_TRUE(std::holds_alternative<core::job_fsm::Cancelled>(job(3).state));
  EXPECT_EQ(job(4).progress, core::Progress{});
  EXPECT_EQ(submission(2).array_size, 3);
  EXPECT_EQ(submission(2).array_parallel, 2);
  EXPECT_EQ(submission(2).demand.least(), 2);
  EXPECT_EQ(submission(2).demand.count, 8);
  EXPECT_EQ(submission(2).not_before_us, 3'787'009'445'000'000);
  EXPECT_EQ(submission(2).dependencies, (std::vector<core::Dependency>{{JobId{1}, false}}));

  EXPECT_EQ(submission(5).cloned_from, JobId{1});
  EXPECT_EQ(submission(5).parent_checkpoint, (core::CheckpointRef{JobId{1}, 79}));
  EXPECT_EQ(submission(5).dependencies, (std::vector<core::Dependency>{{JobId{2}, true}}));
  EXPECT_EQ(submission(6).demand.memory_bytes, int64_t{40} << 30);
  EXPECT_TRUE(submission(6).demand.spread);
  EXPECT_TRUE(submission(6).demand.mixed);
  EXPECT_TRUE(submission(6).judged_by_loss);
}

TEST_F(SqliteStoreTest, TheTwoFilesAreNotMistakenForEachOther) {
  ASSERT_TRUE(OpenSqliteStore(path()).ok());
  EXPECT_EQ(ErrorReason(OpenSqliteMetricsStore(path()).status()), "CORRUPT_FILE");
}

TEST_F(SqliteStoreTest, DamagedPagesAreNoticed) {
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Commit(OneJob()).ok());
  }
  auto bytes = ReadFile(path());
  ASSERT_TRUE(bytes.ok());
  // Overwrites all pages but the first, which holds the schema.
  for (size_t i = 4096; i < bytes->size(); ++i) (*bytes)[i] = '\x5a';
  ASSERT_TRUE(WriteFileAtomically(path(), *bytes).ok());
  auto store = OpenSqliteStore(path());
  const absl::Status status = store.ok() ? (*store)->Load().status() : store.status();
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE") << status;
}

TEST_F(SqliteStoreTest, ADamagedRowConcernsItsOwnJobOnly) {
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    core::Delta delta = OneJob();
    core::JobRecord other = delta.jobs[0];
    other.id = JobId{2};
    delta.jobs.push_back(other);
    delta.next_job = 3;
    ASSERT_TRUE((*store)->Commit(delta).ok());
  }
  for (const char* column : {"state", "stop_reason", "failure_class", "precision"}) {
    Tamper(absl::StrCat("UPDATE jobs SET ", column, " = 'DREAMING' WHERE job = 1"));
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    const auto snapshot = (*store)->Load();
    ASSERT_TRUE(snapshot.ok()) << column << ": " << snapshot.status();
    EXPECT_TRUE(std::holds_alternative<core::job_fsm::Queued>(snapshot->jobs.at(JobId{2}).state));
    const auto* failed = std::get_if<core::job_fsm::Failed>(&snapshot->jobs.at(JobId{1}).state);
    ASSERT_NE(failed, nullptr) << column;
    EXPECT_EQ(failed->failure.reason, "DAMAGED_ROW");
    EXPECT_NE(failed->failure.message.find("DREAMING"), std::string::npos)
        << failed->failure.message;
  }
}

TEST_F(SqliteStoreTest, ADamagedRowOfWhatMayStillRunIsRefused) {
  const core::Delta delta = WrittenByVersion1();  // both jobs have an attempt that runs
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Commit(delta).ok());
  }
  const std::string job = absl::StrCat(" WHERE job = ", delta.jobs[0].id.value);
  const auto load = [&](const std::string& change) {
    Tamper(change + job);
    auto store = OpenSqliteStore(path());
    EXPECT_TRUE(store.ok());
    return (*store)->Load();
  };
  EXPECT_EQ(ErrorReason(load("UPDATE attempts SET state = 'DREAMING'").status()), "CORRUPT_FILE");
  EXPECT_EQ(ErrorReason(load("UPDATE attempts SET state = 'RUNNING'").status()), "");
  EXPECT_EQ(ErrorReason(load("UPDATE attempt_parts SET state = 'DREAMING'").status()),
            "CORRUPT_FILE");
  EXPECT_EQ(ErrorReason(load("UPDATE attempt_parts SET state = 'RUNNING'").status()), "");
  EXPECT_EQ(ErrorReason(load("UPDATE jobs SET stop_reason = 'DREAMING'").status()), "CORRUPT_FILE");
  // Once the attempt has ended, its devices are free, whatever else was lost.
  const auto ended = load("UPDATE attempts SET state = 'SUCCEEDED'");
  ASSERT_TRUE(ended.ok()) << ended.status();
}

TEST_F(SqliteStoreTest, ADamagedWorkerIsCordonedAndADamagedDeviceQuarantined) {
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Commit(WrittenByVersion1()).ok());
  }
  Tamper("UPDATE workers SET state = 'DREAMING', scheduling = 'ELIGIBLE'");
  Tamper("UPDATE devices SET health = 'DREAMING'");
  auto store = OpenSqliteStore(path());
  ASSERT_TRUE(store.ok());
  const auto snapshot = (*store)->Load();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  const core::WorkerRecord& worker = snapshot->workers.at("lab-1");
  EXPECT_TRUE(std::holds_alternative<core::worker_fsm::Unreachable>(worker.state));
  EXPECT_EQ(worker.scheduling, core::Scheduling::kCordoned);
  ASSERT_EQ(worker.devices.size(), 1u);
  EXPECT_EQ(worker.devices[0].quarantine, "its row in the database is damaged");
}

TEST_F(SqliteStoreTest, ADamagedSpecKeepsOnlyItsOwnJobFromStarting) {
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    core::Delta delta = OneJob();
    delta.jobs.push_back(delta.jobs[0]);
    delta.jobs[1].id = JobId{2};
    delta.next_job = 3;
    ASSERT_TRUE((*store)->Commit(delta).ok());
  }
  for (const char* damage : {"UPDATE submissions SET resolved_spec = x'00ff' WHERE id = 1",
                             "UPDATE submissions SET options = x'00ff' WHERE id = 1",
                             "UPDATE submissions SET uid = CAST(x'ff01' AS TEXT) WHERE id = 1"}) {
    Tamper(damage);
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    const auto snapshot = (*store)->Load();
    ASSERT_TRUE(snapshot.ok()) << damage << ": " << snapshot.status();
    EXPECT_EQ(snapshot->jobs.at(JobId{2}).submission->name, "convnet") << damage;
    const core::JobRecord& damaged = snapshot->jobs.at(JobId{1});
    EXPECT_EQ(damaged.submission->name, "damaged") << damage;
    EXPECT_NE(damaged.submission->demand.type, "") << "it must not be placed";
    EXPECT_TRUE(v1::JobSpec().ParseFromString(damaged.submission->resolved_spec)) << damage;
  }
}

TEST_F(SqliteStoreTest, OfTwoServersOnOneDatabaseTheFirstThatCommitsGoesOn) {
  const auto old_one = OpenSqliteStore(path());
  ASSERT_TRUE(old_one.ok()) << old_one.status();
  ASSERT_TRUE((*old_one)->Commit(OneJob()).ok());
  // On a file system without locks, another server reads the state and goes on with it.
  const auto new_one = OpenSqliteStore(path());
  ASSERT_TRUE(new_one.ok()) << new_one.status();
  core::Delta next;
  next.revision = 2;
  next.next_job = 3;
  ASSERT_TRUE((*new_one)->Commit(next).ok());
  next.next_job = 4;
  EXPECT_EQ(ErrorReason((*old_one)->Commit(next)), "STATE_TAKEN_OVER");
  EXPECT_EQ((*new_one)->Load()->next_job, 3);
}

TEST_F(SqliteStoreTest, ADatabaseThatHasLostCommitsIsRefusedUnlessThatIsAccepted) {
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Commit(OneJob()).ok());
  }
  const auto before = ReadFile(path());
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    core::Delta second;
    second.revision = 2;
    second.next_job = 9;
    second.next_event = 5;
    ASSERT_TRUE((*store)->Commit(second).ok());
  }
  ASSERT_TRUE(WriteFileAtomically(path(), *before).ok());
  const absl::Status refused = OpenSqliteStore(path()).status();
  EXPECT_EQ(ErrorReason(refused), "COMMITS_LOST") << refused;
  EXPECT_NE(refused.message().find("--accept_lost_commits"), absl::string_view::npos);

  for (const bool accept : {true, false}) {
    auto store = OpenSqliteStore(path(), {accept});
    ASSERT_TRUE(store.ok()) << store.status();
    const auto snapshot = (*store)->Load();
    ASSERT_TRUE(snapshot.ok());
    EXPECT_EQ(snapshot->revision, 2);
    EXPECT_EQ(snapshot->next_job, 9) << "no number is given out twice";
    EXPECT_EQ(snapshot->next_event, 5);
  }
}

// SQLite drops a damaged frame of the log, and all after it, without a word.
TEST_F(SqliteStoreTest, EveryFlippedBitOfTheLogIsNoticed) {
  const std::string wal = path() + "-wal";
  std::string log;
  std::string file;
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    core::Delta delta = OneJob();
    ASSERT_TRUE((*store)->Commit(delta).ok());
    for (delta = {}, delta.next_job = 2, delta.revision = 2; delta.revision < 6; ++delta.revision) {
      ASSERT_TRUE((*store)->Commit(delta).ok());
    }
    // The log as a server that is killed leaves it.
    log = *ReadFile(wal);
    file = *ReadFile(path());
  }
  constexpr size_t kTried = 60;
  for (size_t i = 0; i < kTried; ++i) {
    std::string damaged = log;
    damaged[i * log.size() / kTried] ^= '\x04';
    ASSERT_TRUE(WriteFileAtomically(path(), file).ok());
    ASSERT_TRUE(WriteFileAtomically(wal, damaged).ok());
    (void)unlink((path() + "-shm").c_str());
    const auto store = OpenSqliteStore(path());
    const absl::Status status = store.ok() ? (*store)->Load().status() : store.status();
    EXPECT_EQ(ErrorReason(status), "COMMITS_LOST") << "byte " << i * log.size() / kTried;
  }
}

TEST_F(SqliteStoreTest, AMarkThatIsGoneOrDamagedIsMadeAnew) {
  const std::string mark = path() + std::string(kCommittedSuffix);
  ASSERT_TRUE(OpenSqliteStore(path()).ok());
  ASSERT_TRUE(WriteFileAtomically(mark, "revision 99 next_job 1 next_event 1 x\n").ok());
  auto store = OpenSqliteStore(path());
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Commit(OneJob()).ok());
  EXPECT_EQ(ReadFile(mark)->find("revision 00000000000000000001 "), 0u) << *ReadFile(mark);
}

TEST_F(SqliteStoreTest, ARowWithoutItsRecordIsCorruption) {
  ASSERT_TRUE(OpenSqliteStore(path()).ok());
  Tamper(
      "PRAGMA foreign_keys = OFF; INSERT INTO job_metrics (job, name, value) VALUES (7, 'lr', 1)");
  auto store = OpenSqliteStore(path());
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(ErrorReason((*store)->Load().status()), "CORRUPT_FILE");
}

// Compares the schema that docs/store_format.md shows with the real one. TRAINYARD_UPDATE_GOLDEN=1
// writes it.
TEST_F(SqliteStoreTest, TheDocumentShowsTheTables) {
  const std::string kDocument = testing::SourcePath("docs/store_format.md");
  auto document = ReadFile(kDocument);
  ASSERT_TRUE(document.ok()) << document.status();
  std::string expected = *document;
  const auto replace = [&expected](const std::string& name,
                                   const std::vector<Migration>& migrations) {
    std::string text = "```sql";
    for (const Migration& migration : migrations) {
      absl::StrAppend(&text, migration.sql, migration.end);
    }
    text += "```\n";
    const std::string begin = absl::StrCat("<!-- begin ", name, " -->\n");
    const size_t from = expected.find(begin);
    const size_t to = expected.find(absl::StrCat("<!-- end ", name, " -->\n"));
    ASSERT_NE(from, std::string::npos);
    ASSERT_NE(to, std::string::npos);
    expected = expected.substr(0, from + begin.size()) + text + expected.substr(to);
  };
  replace("trainyard.db", StateMigrations());
  replace("metrics.db", MetricsMigrations());
  replace("access.db", AccessMigrations());
  replace("secrets.db", SecretMigrations());
  replace("notify.db", NotifyMigrations());
  replace("specs.db", SpecMigrations());
  replace("remarks.db", RemarkMigrations());
  replace("sweeps.db", SweepMigrations());
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(kDocument, expected).ok());
    return;
  }
  EXPECT_EQ(*document, expected) << "if a migration was added, run this test with "
                                    "TRAINYARD_UPDATE_GOLDEN=1; an old one is never edited";
}

}  // namespace
}  // namespace trainyard::store
