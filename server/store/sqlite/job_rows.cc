// Maps jobs and their submissions to rows. A state is spread over a few columns; those that it does
// not need are empty.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/codec/progress.h"
#include "server/codec/submission.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

using core::JobRecord;
using core::JobState;
using core::StopReason;
using core::Submission;

struct SubmissionRow {
  JobId id;
  std::string uid;
  std::string spec;
  std::string resolved_spec;
  std::string options;
};

const Table<SubmissionRow>& Submissions() {
  using Row = SubmissionRow;
  static const auto* table = new Table<Row>(
      "submissions", /*keys=*/1,
      {TY_COLUMN(Row, "id", id), TY_COLUMN(Row, "uid", uid), TY_BLOB_COLUMN(Row, "spec", spec),
       TY_BLOB_COLUMN(Row, "resolved_spec", resolved_spec),
       TY_BLOB_COLUMN(Row, "options", options)});
  return *table;
}

struct JobRow {
  JobRecord job;
  JobId submission;
  std::string state;
  StopReason state_reason = StopReason::kNone;
  std::string state_detail;
  int64_t not_before_us = 0;
  core::Failure failure;
  std::string progress;
};

// A new job is inserted with only its first columns, because half of the cost of an array is that
// statement.
const Table<JobRow>& Jobs() {
  using Row = JobRow;
  static const auto* table =
      new Table<Row>("jobs", /*keys=*/1,
                     {TY_COLUMN(Row, "job", job.id),
                      TY_COLUMN(Row, "submission", submission),
                      TY_COLUMN(Row, "array", job.array),
                      TY_COLUMN(Row, "create_us", job.create_us),
                      TY_COLUMN(Row, "revision", job.revision),
                      TY_COLUMN(Row, "state", state),
                      TY_COLUMN(Row, "state_reason", state_reason),
                      TY_COLUMN(Row, "state_detail", state_detail),
                      TY_COLUMN(Row, "not_before_us", not_before_us),
                      TY_COLUMN(Row, "failure_class", failure.failure_class),
                      TY_COLUMN(Row, "failure_reason", failure.reason),
                      TY_COLUMN(Row, "failure_message", failure.message),
                      TY_COLUMN(Row, "failure_exit_code", failure.exit_code),
                      TY_COLUMN(Row, "stop_reason", job.stop_reason),
                      TY_COLUMN(Row, "attempt", job.attempt),
                      TY_COLUMN(Row, "fencing_token", job.fencing_token),
                      TY_COLUMN(Row, "retries", job.retries),
                      TY_COLUMN(Row, "failures", job.failures),
                      TY_COLUMN(Row, "preemptions", job.preemptions),
                      TY_COLUMN(Row, "run_time_us", job.run_time_us),
                      TY_COLUMN(Row, "device_time_us", job.device_time_us),
                      TY_COLUMN(Row, "start_us", job.start_us),
                      TY_COLUMN(Row, "end_us", job.end_us),
                      TY_BLOB_COLUMN(Row, "progress", progress),
                      TY_COLUMN(Row, "data_digest", job.data_digest),
                      TY_COLUMN(Row, "model_digest", job.model_digest),
                      TY_COLUMN(Row, "worker_version", job.worker_version),
                      TY_COLUMN(Row, "precision", job.precision),
                      TY_COLUMN(Row, "logs_deleted", job.logs_deleted),
                      TY_COLUMN(Row, "metrics_deleted", job.metrics_deleted)},
                     /*new_columns=*/5);
  return *table;
}

struct MetricRow {
  JobId job;
  std::string name;
  double value = 0;
};

const Table<MetricRow>& Metrics() {
  using Row = MetricRow;
  static const auto* table = new Table<Row>(
      "job_metrics", /*keys=*/2,
      {TY_COLUMN(Row, "job", job), TY_COLUMN(Row, "name", name), TY_COLUMN(Row, "value", value)});
  return *table;
}

void Flatten(const JobState& state, JobRow& row) {
  row.state = std::string(core::job_fsm::Name(state));
  if (const auto* queued = std::get_if<core::job_fsm::Queued>(&state)) {
    row.not_before_us = queued->not_before_us;
    if (queued->last_failure.has_value()) row.failure = *queued->last_failure;
  } else if (const auto* stopping = std::get_if<core::job_fsm::Stopping>(&state)) {
    row.state_reason = stopping->reason;
    row.state_detail = stopping->detail;
  } else if (const auto* suspended = std::get_if<core::job_fsm::Suspended>(&state)) {
    if (suspended->failure.has_value()) row.failure = *suspended->failure;
  } else if (const auto* failed = std::get_if<core::job_fsm::Failed>(&state)) {
    row.failure = failed->failure;
  }
}

absl::StatusOr<JobState> Unflatten(const JobRow& row) {
  namespace fsm = core::job_fsm;
  std::optional<core::Failure> failure;
  if (row.failure.failure_class != core::FailureClass::kNone) failure = row.failure;
  const JobState states[] = {fsm::Queued{row.not_before_us, failure},
                             fsm::Starting{},
                             fsm::Running{},
                             fsm::Stopping{row.state_reason, row.state_detail},
                             fsm::Suspended{failure},
                             fsm::Succeeded{},
                             fsm::Failed{row.failure},
                             fsm::Cancelled{}};
  for (const JobState& state : states) {
    if (fsm::Name(state) == row.state) return state;
  }
  return absl::DataLossError(absl::StrCat("'", row.state, "' is no state of a job"));
}

JobRow RowOf(const JobRecord& job) {
  JobRow row;
  row.job = job;
  // The jobs of an array share the submission of the first.
  row.submission = job.array == JobId{} ? job.id : job.array;
  Flatten(job.state, row);
  if (job.progress.report != nullptr) row.progress = *job.progress.report;
  return row;
}

// A new job has only those values that Table::Insert writes.
bool IsAsSubmitted(const JobRecord& job) {
  JobRecord submitted;
  submitted.id = job.id;
  submitted.submission = job.submission;
  submitted.array = job.array;
  submitted.create_us = job.create_us;
  submitted.revision = job.revision;
  return job == submitted;
}

absl::Status InsertJob(Database& db, const JobRow& row) {
  const Submission& submission = *row.job.submission;
  if (row.submission == row.job.id) {
    TY_RETURN_IF_ERROR(
        Submissions().Insert(db, {row.submission, submission.uid, submission.spec,
                                  submission.resolved_spec, codec::EncodeOptions(submission)}));
  }
  return Jobs().Insert(db, row);
}

struct DecodedSubmission {
  std::shared_ptr<const Submission> submission;
  bool has_jobs = false;
};
using DecodedSubmissions = std::map<JobId, DecodedSubmission>;

absl::StatusOr<DecodedSubmissions> ReadSubmissions(Database& db) {
  DecodedSubmissions all;
  TY_RETURN_IF_ERROR(Submissions().Read(db, [&](SubmissionRow& row) -> absl::Status {
    auto decoded = codec::DecodeSubmission(row.uid, std::move(row.spec),
                                           std::move(row.resolved_spec), row.options);
    if (!decoded.ok()) {
      LogError("a row of the database is damaged: the job cannot start or start again",
               {{"job", JobName(row.id)}, {"error", decoded.status().ToString()}});
      decoded = codec::DamagedSubmission(std::move(row.uid));
    }
    all[row.id].submission = std::make_shared<const Submission>(*std::move(decoded));
    return absl::OkStatus();
  }));
  return all;
}

}  // namespace

void TellDamage(absl::string_view name, absl::string_view consequence, const absl::Status& damage) {
  LogError(absl::StrCat("a row of the database is damaged: ", consequence),
           {{"name", std::string(name)}, {"error", damage.ToString()}});
}

absl::Status WriteJob(Database& db, const JobRecord& job, bool is_new) {
  const JobRow row = RowOf(job);
  if (is_new) {
    TY_RETURN_IF_ERROR(InsertJob(db, row));
    if (IsAsSubmitted(job)) return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(Jobs().Update(db, row));
  if (db.ChangedRows() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(JobName(job.id), " is not new and not stored"));
  }
  if (job.attempt == 0) return absl::OkStatus();  // before the first attempt there are no metrics
  TY_RETURN_IF_ERROR(Metrics().Delete(db, job.id));
  for (const auto& [name, value] : job.metrics.values) {
    TY_RETURN_IF_ERROR(Metrics().Insert(db, {job.id, name, value}));
  }
  return absl::OkStatus();
}

absl::Status DeleteJob(Database& db, JobId job) {
  TY_RETURN_IF_ERROR(Metrics().Delete(db, job));
  return Jobs().Delete(db, job);
}

absl::Status DeleteSubmission(Database& db, JobId id) {
  return Submissions().Delete(db, id);
}

absl::Status ReadJobs(Database& db, core::Snapshot& snapshot) {
  TY_ASSIGN_OR_RETURN(DecodedSubmissions submissions, ReadSubmissions(db));
  TY_RETURN_IF_ERROR(Jobs().ReadDamaged(db, [&](JobRow& row, absl::Status damage) -> absl::Status {
    JobRecord& job = row.job;
    TY_ASSIGN_OR_RETURN(DecodedSubmission * owner, OwnerOf(submissions, row.submission));
    owner->has_jobs = true;
    job.submission = owner->submission;
    auto state = Unflatten(row);
    damage.Update(state.status());
    if (damage.ok()) {
      job.state = *std::move(state);
    } else {
      TellDamage(JobName(job.id), "the job counts as failed", damage);
      job.state = core::job_fsm::Failed{{core::FailureClass::kUserError, kDamagedRow,
                                         absl::StrCat("the row of the job in the database is "
                                                      "damaged: ",
                                                      damage.message())}};
    }
    job.progress = codec::ProgressOf(std::move(row.progress));
    const JobId id = job.id;
    snapshot.jobs.emplace_hint(snapshot.jobs.end(), id, std::move(job));
    return absl::OkStatus();
  }));
  for (const auto& [id, decoded] : submissions) {
    if (!decoded.has_jobs) snapshot.kept_submissions.emplace(id, *decoded.submission);
  }
  return Metrics().Read(db, [&](const MetricRow& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(JobRecord * job, OwnerOf(snapshot.jobs, row.job));
    job->metrics.values[row.name] = row.value;
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
