#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"

namespace trainyard::store {
namespace {

using core::JobRecord;
using core::JobState;
using core::StopReason;
using core::Submission;
using core::Text;

// A state, laid flat: the columns that a state does not need are empty.
struct FlatState {
  StopReason reason = StopReason::kNone;
  std::string detail;
  int64_t not_before_us = 0;
  core::Failure failure;
};

FlatState Flatten(const JobState& state) {
  FlatState flat;
  if (const auto* queued = std::get_if<core::job_fsm::Queued>(&state)) {
    flat.not_before_us = queued->not_before_us;
    if (queued->last_failure.has_value()) flat.failure = *queued->last_failure;
  } else if (const auto* stopping = std::get_if<core::job_fsm::Stopping>(&state)) {
    flat.reason = stopping->reason;
    flat.detail = stopping->detail;
  } else if (const auto* failed = std::get_if<core::job_fsm::Failed>(&state)) {
    flat.failure = failed->failure;
  }
  return flat;
}

absl::StatusOr<JobState> Unflatten(const std::string& name, FlatState flat) {
  namespace fsm = core::job_fsm;
  fsm::Queued queued{flat.not_before_us, std::nullopt};
  if (flat.failure.failure_class != core::FailureClass::kNone) queued.last_failure = flat.failure;
  const JobState states[] = {queued,
                             fsm::Starting{},
                             fsm::Running{},
                             fsm::Stopping{flat.reason, flat.detail},
                             fsm::Suspended{},
                             fsm::Succeeded{},
                             fsm::Failed{flat.failure},
                             fsm::Cancelled{}};
  for (const JobState& state : states) {
    if (fsm::Name(state) == name) return state;
  }
  return absl::DataLossError(absl::StrCat("'", name, "' is no state of a job"));
}

// The submission never changes: written once.
constexpr char kWriteSubmission[] =
    "INSERT INTO submissions (job, uid, name, user, spec, resolved_spec, device_count, "
    "device_type, device_mixed, priority, max_retries, time_limit_us, disconnect_keep_us, "
    "checkpoints_kept, cloned_from, parent_job, parent_step, server_version) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job) DO NOTHING";
constexpr char kReadSubmissions[] =
    "SELECT job, uid, name, user, spec, resolved_spec, device_count, device_type, device_mixed, "
    "priority, max_retries, time_limit_us, disconnect_keep_us, checkpoints_kept, cloned_from, "
    "parent_job, parent_step, server_version FROM submissions ORDER BY job";

constexpr char kWriteJob[] =
    "INSERT INTO jobs (job, state, state_reason, state_detail, not_before_us, failure_class, "
    "failure_reason, failure_message, stop_reason, attempt, fencing_token, retries, failures, "
    "run_time_us, create_us, start_us, end_us, step, total_steps, epoch, epochs, samples_per_s, "
    "data_wait_fraction, eta_us, data_digest, model_digest, worker_version, revision) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (job) DO UPDATE SET state = excluded.state, "
    "state_reason = excluded.state_reason, state_detail = excluded.state_detail, "
    "not_before_us = excluded.not_before_us, failure_class = excluded.failure_class, "
    "failure_reason = excluded.failure_reason, failure_message = excluded.failure_message, "
    "stop_reason = excluded.stop_reason, attempt = excluded.attempt, "
    "fencing_token = excluded.fencing_token, retries = excluded.retries, "
    "failures = excluded.failures, run_time_us = excluded.run_time_us, "
    "create_us = excluded.create_us, start_us = excluded.start_us, end_us = excluded.end_us, "
    "step = excluded.step, total_steps = excluded.total_steps, epoch = excluded.epoch, "
    "epochs = excluded.epochs, samples_per_s = excluded.samples_per_s, "
    "data_wait_fraction = excluded.data_wait_fraction, eta_us = excluded.eta_us, "
    "data_digest = excluded.data_digest, model_digest = excluded.model_digest, "
    "worker_version = excluded.worker_version, revision = excluded.revision";
constexpr char kReadJobs[] =
    "SELECT job, state, state_reason, state_detail, not_before_us, failure_class, failure_reason, "
    "failure_message, stop_reason, attempt, fencing_token, retries, failures, run_time_us, "
    "create_us, start_us, end_us, step, total_steps, epoch, epochs, samples_per_s, "
    "data_wait_fraction, eta_us, data_digest, model_digest, worker_version, revision "
    "FROM jobs ORDER BY job";

constexpr char kDeleteMetrics[] = "DELETE FROM job_metrics WHERE job = ?";
constexpr char kWriteMetric[] = "INSERT INTO job_metrics (job, name, value) VALUES (?, ?, ?)";
constexpr char kReadMetrics[] = "SELECT job, name, value FROM job_metrics ORDER BY job, name";

absl::Status WriteSubmission(Database& db, JobId job, const Submission& in) {
  Statement& row = db.Prepared(kWriteSubmission);
  row.Bind(job.value).Bind(in.uid).Bind(in.name).Bind(in.user);
  row.BindBlob(in.spec).BindBlob(in.resolved_spec);
  row.Bind(in.demand.count).Bind(in.demand.type).Bind(int64_t{in.demand.mixed});
  row.Bind(in.priority).Bind(in.max_retries).Bind(in.time_limit_us).Bind(in.disconnect_keep_us);
  row.Bind(in.checkpoints_kept).Bind(in.cloned_from.value);
  if (in.parent_checkpoint.has_value()) {
    row.Bind(in.parent_checkpoint->job.value).Bind(in.parent_checkpoint->step);
  } else {
    row.BindNull().BindNull();
  }
  return row.Bind(in.server_version).Run();
}

Submission TakeSubmission(const Statement& row) {
  Submission out;
  out.uid = row.Text(1);
  out.name = row.Text(2);
  out.user = row.Text(3);
  out.spec = row.Blob(4);
  out.resolved_spec = row.Blob(5);
  out.demand = {row.Int32(6), row.Text(7), row.Int(8) != 0};
  out.priority = row.Int32(9);
  out.max_retries = row.Int32(10);
  out.time_limit_us = row.Int(11);
  out.disconnect_keep_us = row.Int(12);
  out.checkpoints_kept = row.Int32(13);
  out.cloned_from = JobId{row.Int(14)};
  if (!row.IsNull(15)) out.parent_checkpoint = core::CheckpointRef{JobId{row.Int(15)}, row.Int(16)};
  out.server_version = row.Text(17);
  return out;
}

absl::Status TakeJob(const Statement& row, JobRecord& job) {
  FlatState flat;
  TY_RETURN_IF_ERROR(FromText(row.Text(2), flat.reason));
  flat.detail = row.Text(3);
  flat.not_before_us = row.Int(4);
  TY_RETURN_IF_ERROR(FromText(row.Text(5), flat.failure.failure_class));
  flat.failure.reason = row.Text(6);
  flat.failure.message = row.Text(7);
  TY_ASSIGN_OR_RETURN(job.state, Unflatten(row.Text(1), std::move(flat)));
  TY_RETURN_IF_ERROR(FromText(row.Text(8), job.stop_reason));
  job.attempt = row.Int32(9);
  job.fencing_token = row.Int(10);
  job.retries = row.Int32(11);
  job.failures = row.Int32(12);
  job.run_time_us = row.Int(13);
  job.create_us = row.Int(14);
  job.start_us = row.Int(15);
  job.end_us = row.Int(16);
  job.progress = {row.Int(17),  row.Int(18),  row.Int(19), row.Int(20),
                  row.Real(21), row.Real(22), row.Int(23)};
  job.data_digest = row.Text(24);
  job.model_digest = row.Text(25);
  job.worker_version = row.Text(26);
  job.revision = row.Int(27);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteJob(Database& db, const JobRecord& job) {
  TY_RETURN_IF_ERROR(WriteSubmission(db, job.id, *job.submission));
  const FlatState flat = Flatten(job.state);
  const core::Progress& progress = job.progress;
  Statement& row = db.Prepared(kWriteJob);
  row.Bind(job.id.value).Bind(core::job_fsm::Name(job.state));
  row.Bind(Text(flat.reason)).Bind(flat.detail).Bind(flat.not_before_us);
  row.Bind(Text(flat.failure.failure_class)).Bind(flat.failure.reason).Bind(flat.failure.message);
  row.Bind(Text(job.stop_reason)).Bind(job.attempt).Bind(job.fencing_token).Bind(job.retries);
  row.Bind(job.failures).Bind(job.run_time_us).Bind(job.create_us).Bind(job.start_us);
  row.Bind(job.end_us).Bind(progress.step).Bind(progress.total_steps).Bind(progress.epoch);
  row.Bind(progress.epochs).BindReal(progress.samples_per_s);
  row.BindReal(progress.data_wait_fraction).Bind(progress.eta_us);
  row.Bind(job.data_digest).Bind(job.model_digest).Bind(job.worker_version).Bind(job.revision);
  TY_RETURN_IF_ERROR(row.Run());
  TY_RETURN_IF_ERROR(db.Prepared(kDeleteMetrics).Bind(job.id.value).Run());
  for (const auto& [name, value] : job.metrics.values) {
    TY_RETURN_IF_ERROR(
        db.Prepared(kWriteMetric).Bind(job.id.value).Bind(name).BindReal(value).Run());
  }
  return absl::OkStatus();
}

absl::Status ReadJobs(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadSubmissions), [&](const Statement& row) {
    JobRecord& job = snapshot.jobs[JobId{row.Int(0)}];
    job.id = JobId{row.Int(0)};
    job.submission = std::make_shared<const Submission>(TakeSubmission(row));
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadJobs), [&](const Statement& row) -> absl::Status {
    const JobId id{row.Int(0)};
    TY_ASSIGN_OR_RETURN(JobRecord * job, OwnerOf(snapshot.jobs, id));
    return Annotate(TakeJob(row, *job), JobName(id));
  }));
  return ForEachRow(db.Prepared(kReadMetrics), [&](const Statement& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(JobRecord * job, OwnerOf(snapshot.jobs, JobId{row.Int(0)}));
    job->metrics.values[row.Text(1)] = row.Real(2);
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
