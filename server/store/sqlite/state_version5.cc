// Packs the columns of version 4 into the messages of version 5. It names the columns as they were
// then, so it never changes with the tables of later versions.
#include "server/store/sqlite/state_version5.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "server/codec/progress.h"
#include "server/codec/submission.h"
#include "server/codec/time.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

constexpr char kSqlBefore[] = R"sql(
CREATE TABLE submissions_5 (
  id INTEGER NOT NULL PRIMARY KEY,
  uid TEXT NOT NULL,
  spec BLOB NOT NULL,
  resolved_spec BLOB NOT NULL,
  options BLOB NOT NULL
) STRICT;

CREATE TABLE jobs_5 (
  job INTEGER NOT NULL PRIMARY KEY,
  submission INTEGER NOT NULL,
  array INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'QUEUED',
  state_reason TEXT NOT NULL DEFAULT 'NONE',
  state_detail TEXT NOT NULL DEFAULT '',
  not_before_us INTEGER NOT NULL DEFAULT 0,
  failure_class TEXT NOT NULL DEFAULT 'NONE',
  failure_reason TEXT NOT NULL DEFAULT '',
  failure_message TEXT NOT NULL DEFAULT '',
  stop_reason TEXT NOT NULL DEFAULT 'NONE',
  attempt INTEGER NOT NULL DEFAULT 0,
  fencing_token INTEGER NOT NULL DEFAULT 0,
  retries INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  preemptions INTEGER NOT NULL DEFAULT 0,
  run_time_us INTEGER NOT NULL DEFAULT 0,
  device_time_us INTEGER NOT NULL DEFAULT 0,
  start_us INTEGER NOT NULL DEFAULT 0,
  end_us INTEGER NOT NULL DEFAULT 0,
  progress BLOB NOT NULL DEFAULT x'',
  data_digest TEXT NOT NULL DEFAULT '',
  model_digest TEXT NOT NULL DEFAULT '',
  worker_version TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO jobs_5
  SELECT job, submission, array, create_us, revision, state, state_reason, state_detail,
    not_before_us, failure_class, failure_reason, failure_message, stop_reason, attempt,
    fencing_token, retries, failures, preemptions, run_time_us, device_time_us, start_us, end_us,
    x'', data_digest, model_digest, worker_version
  FROM jobs;

CREATE TABLE checkpoints_5 (
  job INTEGER NOT NULL,
  step INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  is_evaluated INTEGER NOT NULL,
  loss REAL NOT NULL,
  accuracy REAL NOT NULL,
  PRIMARY KEY (job, step)
) STRICT, WITHOUT ROWID;
INSERT INTO checkpoints_5
  SELECT job, step, attempt, create_us, is_evaluated, loss, accuracy FROM checkpoints;
DROP TABLE checkpoints;
ALTER TABLE checkpoints_5 RENAME TO checkpoints;
-- The program fills in submissions_5 and jobs_5.progress here.
)sql";
constexpr char kSqlAfter[] = R"sql(
DROP TABLE submission_labels;
DROP TABLE submission_dependencies;
DROP TABLE submissions;
ALTER TABLE submissions_5 RENAME TO submissions;
DROP TABLE jobs;
ALTER TABLE jobs_5 RENAME TO jobs;
)sql";

// Everything else that a submission contained is in its resolved spec.
struct OldSubmission {
  JobId id;
  core::Submission submission;
  std::optional<int64_t> parent_job;
  std::optional<int64_t> parent_step;
};

const Table<OldSubmission>& OldSubmissions() {
  using Row = OldSubmission;
  static const auto* table = new Table<Row>(
      "submissions", /*keys=*/1,
      {TY_COLUMN(Row, "id", id), TY_COLUMN(Row, "uid", submission.uid),
       TY_COLUMN(Row, "user", submission.user), TY_BLOB_COLUMN(Row, "spec", submission.spec),
       TY_BLOB_COLUMN(Row, "resolved_spec", submission.resolved_spec),
       TY_COLUMN(Row, "cloned_from", submission.cloned_from),
       TY_COLUMN(Row, "parent_job", parent_job), TY_COLUMN(Row, "parent_step", parent_step),
       TY_COLUMN(Row, "server_version", submission.server_version),
       TY_COLUMN(Row, "not_before_us", submission.not_before_us),
       TY_COLUMN(Row, "reservation", submission.reservation),
       TY_COLUMN(Row, "array_size", submission.array_size),
       TY_COLUMN(Row, "array_parallel", submission.array_parallel)});
  return *table;
}

struct OldDependency {
  JobId submission;
  int64_t position = 0;
  core::Dependency dependency;
};

const Table<OldDependency>& OldDependencies() {
  using Row = OldDependency;
  static const auto* table = new Table<Row>(
      "submission_dependencies", /*keys=*/2,
      {TY_COLUMN(Row, "submission", submission), TY_COLUMN(Row, "position", position),
       TY_COLUMN(Row, "job", dependency.job), TY_COLUMN(Row, "ok", dependency.ok)});
  return *table;
}

struct OldProgress {
  JobId job;
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t epoch = 0;
  int64_t epochs = 0;
  double samples_per_s = 0;
  double data_wait_fraction = 0;
  int64_t eta_us = 0;
  std::string hosting;  // one line for each rank
  std::string hosting_reason;
};

const Table<OldProgress>& OldProgresses() {
  using Row = OldProgress;
  static const auto* table = new Table<Row>(
      "jobs", /*keys=*/1,
      {TY_COLUMN(Row, "job", job), TY_COLUMN(Row, "step", step),
       TY_COLUMN(Row, "total_steps", total_steps), TY_COLUMN(Row, "epoch", epoch),
       TY_COLUMN(Row, "epochs", epochs), TY_COLUMN(Row, "samples_per_s", samples_per_s),
       TY_COLUMN(Row, "data_wait_fraction", data_wait_fraction), TY_COLUMN(Row, "eta_us", eta_us),
       TY_COLUMN(Row, "hosting", hosting), TY_COLUMN(Row, "hosting_reason", hosting_reason)});
  return *table;
}

constexpr char kWriteSubmission[] =
    "INSERT INTO submissions_5 (id, uid, spec, resolved_spec, options) VALUES (?, ?, ?, ?, ?)";
constexpr char kWriteProgress[] = "UPDATE jobs_5 SET progress = ? WHERE job = ?";

absl::Status AddHosting(absl::string_view text, v1::Progress& report) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    int32_t rank = 0;
    int32_t first_replica = 0;
    int32_t replicas = 0;
    int32_t stage = 0;
    double samples_per_s = 0;
    if (words.size() != 5 || !absl::SimpleAtoi(words[0], &rank) ||
        !absl::SimpleAtoi(words[1], &first_replica) || !absl::SimpleAtoi(words[2], &replicas) ||
        !absl::SimpleAtoi(words[3], &stage) || !absl::SimpleAtod(words[4], &samples_per_s)) {
      return absl::DataLossError(absl::StrCat("'", line, "' is no hosting of a rank"));
    }
    v1::RankHosting* host = report.add_hosting();
    host->set_rank(rank);
    host->set_first_replica(first_replica);
    host->set_replicas(replicas);
    host->set_stage(stage);
    host->set_samples_per_s(samples_per_s);
  }
  return absl::OkStatus();
}

absl::Status FillSubmissions(Database& db) {
  std::map<JobId, std::vector<core::Dependency>> dependencies;
  TY_RETURN_IF_ERROR(OldDependencies().Read(db, [&](const OldDependency& row) {
    dependencies[row.submission].push_back(row.dependency);
    return absl::OkStatus();
  }));
  return OldSubmissions().Read(db, [&](OldSubmission& row) {
    core::Submission& submission = row.submission;
    if (row.parent_job.has_value()) {
      submission.parent_checkpoint =
          core::CheckpointRef{JobId{*row.parent_job}, row.parent_step.value_or(0)};
    }
    if (const auto found = dependencies.find(row.id); found != dependencies.end()) {
      submission.dependencies = found->second;
    }
    const std::string options = codec::EncodeOptions(submission);
    Statement& insert = db.Prepared(kWriteSubmission);
    insert.Bind(row.id.value).Bind(submission.uid).BindBlob(submission.spec);
    return insert.BindBlob(submission.resolved_spec).BindBlob(options).Run();
  });
}

absl::Status FillProgress(Database& db) {
  return OldProgresses().Read(db, [&](const OldProgress& row) -> absl::Status {
    v1::Progress report;
    report.set_step(row.step);
    report.set_total_steps(row.total_steps);
    report.set_epoch(row.epoch);
    report.set_epochs(row.epochs);
    report.set_samples_per_s(row.samples_per_s);
    report.set_data_wait_fraction(row.data_wait_fraction);
    if (row.eta_us > 0) *report.mutable_eta() = codec::ToDuration(row.eta_us);
    TY_RETURN_IF_ERROR(AddHosting(row.hosting, report));
    report.set_hosting_reason(row.hosting_reason);
    const core::Progress progress = codec::EncodeProgress(std::move(report));
    if (progress.report == nullptr) return absl::OkStatus();
    return db.Prepared(kWriteProgress).BindBlob(*progress.report).Bind(row.job.value).Run();
  });
}

absl::Status Fill(Database& db) {
  TY_RETURN_IF_ERROR(FillSubmissions(db));
  return FillProgress(db);
}

}  // namespace

Migration Version5() {
  return {kSqlBefore, Fill, kSqlAfter};
}

}  // namespace trainyard::store
