// Cuts the power under the shipped store at a random change of its files, and again while it
// recovers. What comes up must be all that was committed, and at most the commit that was under
// way.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/core/lifecycle/snapshot.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/sqlite_metrics_store.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/faults/power_disk.h"
#include "tests/faults/report.h"
#include "tests/testing/resolved_spec.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

constexpr int kCommitsMax = 40;
// A commit of some rows changes the files about this often.
constexpr int kChangesOfCommit = 25;
// With some specs of this size, the log of the database is written back within a round.
constexpr size_t kLargeSpecBytes = 400'000;

// A store, the disk below it, and what was committed to it.
class PowerRound {
 public:
  explicit PowerRound(uint64_t seed) : random_(seed), disk_(random_()) {}

  PowerDisk& disk() { return disk_; }
  int64_t acknowledged() const { return acknowledged_.revision; }

  // Commits until the power goes, at most kCommitsMax times.
  void Work() {
    disk_.CutAfter(static_cast<int64_t>(random_() % (kCommitsMax * kChangesOfCommit)));
    absl::Status status = Open();
    for (int i = 0; i < kCommitsMax && status.ok(); ++i) status = Commit();
    Close();
    EXPECT_TRUE(status.ok() || disk_.is_off()) << "a disk with power refused: " << status;
  }

  // Gives power again, takes it once more while the store recovers, and gives it again.
  void Recover() {
    for (const bool again : {true, false}) {
      disk_.Restore();
      LoseMark();
      if (again) disk_.CutAfter(static_cast<int64_t>(random_() % kChangesOfCommit));
      opened_ = Open();
      // With power, the store must open.
      if (!opened_.ok() && !disk_.is_off()) return;
      if (again) Close();
    }
  }

  const absl::Status& opened() const { return opened_; }

  // Checks that the open store holds everything, and that it goes on from there.
  void Check() {
    ASSERT_TRUE(opened_.ok()) << opened_;
    const auto loaded = store_->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_GE(loaded->revision, acknowledged_.revision) << "an acknowledged commit is lost";
    if (loaded->revision > acknowledged_.revision) {
      ASSERT_TRUE(under_way_.has_value());
      acknowledged_ = *std::exchange(under_way_, std::nullopt);
    }
    ASSERT_EQ(*loaded, acknowledged_) << "a part of a commit is there";
    const auto database = store::Database::Open(path_, store::Database::Mode::kReadOnly);
    ASSERT_TRUE(database.ok()) << database.status();
    store::Statement& check = (*database)->Prepared("PRAGMA integrity_check");
    ASSERT_TRUE(*check.Step());
    EXPECT_EQ(check.Text(0), "ok");
    check.Reset();
    EXPECT_TRUE(Commit().ok());
  }
  // Returns true if the open store lacks a commit.
  bool HasLost() {
    const auto loaded = store_->Load();
    return !loaded.ok() || loaded->revision < acknowledged_.revision;
  }
  void Close() { store_ = nullptr; }

 private:
  absl::Status Open() {
    auto store = store::OpenSqliteStore(path_);
    if (store.ok()) store_ = *std::move(store);
    return store.status();
  }

  // The mark is written beside the database without a sync, so any of its states may come back.
  void LoseMark() {
    if (marks_.empty()) return;
    const size_t kept = random_() % (marks_.size() + 1);
    const std::string mark = kept == marks_.size() ? std::string() : marks_[kept];
    ASSERT_TRUE(ReplaceFile(mark_path_, mark).ok());
  }

  core::JobRecord NewJob(int64_t number) {
    core::Submission submission;
    submission.uid = absl::StrCat("uid-", number);
    submission.name = "convnet";
    submission.user = "anna";
    submission.spec.assign(random_() % 10 == 0 ? kLargeSpecBytes : 100, 's');
    submission.checkpoints_kept = 2;
    submission.server_version = "0.1.0";
    SetResolvedSpec(submission);
    core::JobRecord job;
    job.id = JobId{number};
    job.submission = std::make_shared<const core::Submission>(std::move(submission));
    job.state = core::job_fsm::Queued{};
    job.create_us = 1'790'000'000'000'000;
    return job;
  }

  core::Delta NextDelta() {
    core::Delta delta;
    delta.revision = acknowledged_.revision + 1;
    delta.next_job = acknowledged_.next_job;
    delta.next_event = acknowledged_.next_event;
    if (!acknowledged_.jobs.empty() && random_() % 2 == 0) {
      auto job = acknowledged_.jobs.begin();
      std::advance(job, static_cast<int64_t>(random_() % acknowledged_.jobs.size()));
      if (random_() % 5 == 0) {
        delta.deleted_jobs.push_back(job->first);
        delta.deleted_submissions.push_back(job->first);
      } else {
        delta.jobs.push_back(job->second);
        delta.jobs.back().revision = delta.revision;
        delta.jobs.back().run_time_us = static_cast<int64_t>(random_() % 1000);
      }
    } else {
      delta.jobs.push_back(NewJob(delta.next_job++));
      const core::JobRecord& job = delta.jobs.back();
      delta.requests.push_back({absl::StrCat("r", job.id.value), "hash", job.id, job.create_us});
      delta.events.push_back({delta.next_event++, job.create_us,
                              absl::StrCat("jobs/", job.id.value), "JOB_QUEUED", "user:anna",
                              "why"});
    }
    return delta;
  }

  absl::Status Commit() {
    const core::Delta delta = NextDelta();
    core::Snapshot after = acknowledged_;
    core::Apply(delta, after);
    under_way_ = after;
    const absl::Status status = store_->Commit(delta);
    if (!status.ok()) return status;
    acknowledged_ = *std::exchange(under_way_, std::nullopt);
    marks_.push_back(*ReadFile(mark_path_));
    return status;
  }

  std::mt19937_64 random_;
  TempDir dir_;
  const std::string path_ = dir_.File("trainyard.db");
  const std::string mark_path_ = absl::StrCat(path_, store::kCommittedSuffix);
  PowerDisk disk_;
  std::unique_ptr<store::Store> store_;
  absl::Status opened_;
  core::Snapshot acknowledged_;
  std::optional<core::Snapshot> under_way_;
  std::vector<std::string> marks_;
};

TEST(Power, WhatWasCommittedOutlivesItsLoss) {
  FaultRow row({.fault = "loss of power under the store",
                .injection = "lost, reordered and torn unsynced writes at a random change of a "
                             "file, and again during recovery (SQLite VFS in memory)",
                .expectation = "the state is that of the last acknowledged commit, or of the one "
                               "that was under way, and the mark agrees"});
  const int rounds = Scaled(12, 2000);
  for (int seed = 1; seed <= rounds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    PowerRound round(static_cast<uint64_t>(seed));
    // A store that has recovered works on, and loses its power again.
    for (int life = 0; life < 2; ++life) {
      round.Work();
      round.Recover();
      round.Check();
      round.Close();
      row.Count("losses of power", 2);
      if (HasFailure()) return;
    }
    row.Count("acknowledged commits", round.acknowledged());
    row.Count("lost sectors", round.disk().lost_sectors());
    row.Count("torn writes", round.disk().torn_writes());
  }
  row.Count("lost commits", 0);
  row.Survived();
}

// Points and offsets are written in one transaction without a sync, since the worker has the points
// for a while. So some of the newest may be gone, but only together with their offset.
TEST(Power, MetricsKeepTheirOffset) {
  FaultRow row({.fault = "loss of power under the metrics",
                .injection = "lost, reordered and torn unsynced writes at a random change of a "
                             "file (SQLite VFS in memory)",
                .expectation = "the points are those before the offset, so the worker sends the "
                               "others again; none is doubled"});
  const AttemptId attempt{JobId{1}, 1};
  constexpr int64_t kPointBytes = 10;
  constexpr int64_t kAppendsMax = 2000;
  for (int seed = 1; seed <= Scaled(5, 500); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    PowerDisk disk(random());
    int64_t acknowledged = 0;
    const auto append = [&](store::MetricsStore& store) {
      const store::MetricPoint point = {acknowledged + 1, "train.loss", 0.5};
      const int64_t offset = acknowledged * kPointBytes;
      return store.AppendPoints(attempt, 0, offset, {point}, offset + kPointBytes).status();
    };
    disk.CutAfter(static_cast<int64_t>(random() % (kAppendsMax * 4)));
    if (auto store = store::OpenSqliteMetricsStore("/metrics.db"); store.ok()) {
      while (acknowledged < kAppendsMax && append(**store).ok()) ++acknowledged;
    }
    disk.Restore();
    const auto store = store::OpenSqliteMetricsStore("/metrics.db");
    ASSERT_TRUE(store.ok()) << store.status();
    const int64_t kept = *(*store)->ReadOffset(attempt, 0) / kPointBytes;
    ASSERT_LE(kept, acknowledged + 1);
    EXPECT_EQ(*(*store)->CountPoints(JobId{1}), kept);
    row.Count("losses of power", 1);
    row.Count("acknowledged points", acknowledged);
    row.Count("points to send again", std::max<int64_t>(0, acknowledged - kept));
    acknowledged = kept;
    EXPECT_TRUE(append(**store).ok());
    if (HasFailure()) return;
  }
  row.Survived();
}

// Shows that the first test would see a loss.
TEST(Power, ADiskThatOnlyClaimsToSyncIsNoticed) {
  int noticed = 0;
  constexpr int kRounds = 5;
  for (int seed = 1; seed <= kRounds; ++seed) {
    PowerRound round(static_cast<uint64_t>(seed));
    round.disk().set_lies(true);
    round.Work();
    round.Recover();
    if (!round.opened().ok() || round.HasLost()) ++noticed;
    round.Close();
  }
  EXPECT_GT(noticed, 0);
}

}  // namespace
}  // namespace trainyard::testing
