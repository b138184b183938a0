#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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
  } else if (const auto* suspended = std::get_if<core::job_fsm::Suspended>(&state)) {
    if (suspended->failure.has_value()) flat.failure = *suspended->failure;
  } else if (const auto* failed = std::get_if<core::job_fsm::Failed>(&state)) {
    flat.failure = failed->failure;
  }
  return flat;
}

absl::StatusOr<JobState> Unflatten(const std::string& name, FlatState flat) {
  namespace fsm = core::job_fsm;
  std::optional<core::Failure> failure;
  if (flat.failure.failure_class != core::FailureClass::kNone) failure = flat.failure;
  const JobState states[] = {fsm::Queued{flat.not_before_us, failure},
                             fsm::Starting{},
                             fsm::Running{},
                             fsm::Stopping{flat.reason, flat.detail},
                             fsm::Suspended{failure},
                             fsm::Succeeded{},
                             fsm::Failed{flat.failure},
                             fsm::Cancelled{}};
  for (const JobState& state : states) {
    if (fsm::Name(state) == name) return state;
  }
  return absl::DataLossError(absl::StrCat("'", name, "' is no state of a job"));
}

constexpr char kWriteSubmission[] =
    "INSERT INTO submissions (id, uid, name, user, spec, resolved_spec, device_count, "
    "device_type, device_mixed, priority, max_retries, time_limit_us, disconnect_keep_us, "
    "checkpoints_kept, cloned_from, parent_job, parent_step, server_version, device_min_count, "
    "device_memory_bytes, device_spread, project, not_before_us, time_limit_warning_us, "
    "reservation, preemptible, array_size, array_parallel, keeps_best, judged_by_loss) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
    "?, ?)";
constexpr char kReadSubmissions[] =
    "SELECT id, uid, name, user, spec, resolved_spec, device_count, device_type, device_mixed, "
    "priority, max_retries, time_limit_us, disconnect_keep_us, checkpoints_kept, cloned_from, "
    "parent_job, parent_step, server_version, device_min_count, device_memory_bytes, "
    "device_spread, project, not_before_us, time_limit_warning_us, reservation, preemptible, "
    "array_size, array_parallel, keeps_best, judged_by_loss FROM submissions ORDER BY id";

constexpr char kWriteLabel[] =
    "INSERT INTO submission_labels (submission, name, value) VALUES (?, ?, ?)";
constexpr char kReadLabels[] =
    "SELECT submission, name, value FROM submission_labels ORDER BY submission, name";
constexpr char kWriteDependency[] =
    "INSERT INTO submission_dependencies (submission, position, job, ok) VALUES (?, ?, ?, ?)";
constexpr char kReadDependencies[] =
    "SELECT submission, position, job, ok FROM submission_dependencies "
    "ORDER BY submission, position";

// As it was submitted. Half of the cost of an array is this statement: little is bound.
constexpr char kInsertJob[] =
    "INSERT INTO jobs (job, submission, array, create_us, revision, state, state_reason, "
    "state_detail, not_before_us, failure_class, failure_reason, failure_message, stop_reason, "
    "attempt, fencing_token, retries, failures, preemptions, run_time_us, device_time_us, "
    "start_us, end_us, step, total_steps, epoch, epochs, samples_per_s, data_wait_fraction, "
    "eta_us, data_digest, model_digest, worker_version) VALUES (?, ?, ?, ?, ?, 'QUEUED', 'NONE', "
    "'', 0, 'NONE', '', '', 'NONE', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '')";
constexpr char kUpdateJob[] =
    "UPDATE jobs SET state = ?, state_reason = ?, state_detail = ?, not_before_us = ?, "
    "failure_class = ?, failure_reason = ?, failure_message = ?, stop_reason = ?, attempt = ?, "
    "fencing_token = ?, retries = ?, failures = ?, preemptions = ?, run_time_us = ?, "
    "device_time_us = ?, create_us = ?, start_us = ?, end_us = ?, step = ?, total_steps = ?, "
    "epoch = ?, epochs = ?, samples_per_s = ?, data_wait_fraction = ?, eta_us = ?, "
    "data_digest = ?, model_digest = ?, worker_version = ?, hosting = ?, hosting_reason = ?, "
    "revision = ? WHERE job = ?";
constexpr char kReadJobs[] =
    "SELECT job, submission, array, state, state_reason, state_detail, not_before_us, "
    "failure_class, failure_reason, failure_message, stop_reason, attempt, fencing_token, retries, "
    "failures, preemptions, run_time_us, device_time_us, create_us, start_us, end_us, step, "
    "total_steps, epoch, epochs, samples_per_s, data_wait_fraction, eta_us, data_digest, "
    "model_digest, worker_version, revision, hosting, hosting_reason FROM jobs ORDER BY job";

constexpr char kDeleteMetrics[] = "DELETE FROM job_metrics WHERE job = ?";
constexpr char kWriteMetric[] = "INSERT INTO job_metrics (job, name, value) VALUES (?, ?, ?)";
constexpr char kReadMetrics[] = "SELECT job, name, value FROM job_metrics ORDER BY job, name";

absl::Status WriteSubmission(Database& db, JobId id, const Submission& in) {
  Statement& row = db.Prepared(kWriteSubmission);
  row.Bind(id.value).Bind(in.uid).Bind(in.name).Bind(in.user);
  row.BindBlob(in.spec).BindBlob(in.resolved_spec);
  row.Bind(in.demand.count).Bind(in.demand.type).Bind(int64_t{in.demand.mixed});
  row.Bind(in.priority).Bind(in.max_retries).Bind(in.time_limit_us).Bind(in.disconnect_keep_us);
  row.Bind(in.checkpoints_kept).Bind(in.cloned_from.value);
  if (in.parent_checkpoint.has_value()) {
    row.Bind(in.parent_checkpoint->job.value).Bind(in.parent_checkpoint->step);
  } else {
    row.BindNull().BindNull();
  }
  row.Bind(in.server_version).Bind(in.demand.min_count).Bind(in.demand.memory_bytes);
  row.Bind(int64_t{in.demand.spread}).Bind(in.project).Bind(in.not_before_us);
  row.Bind(in.time_limit_warning_us).Bind(in.reservation).Bind(int64_t{in.preemptible});
  row.Bind(in.array_size).Bind(in.array_parallel);
  TY_RETURN_IF_ERROR(row.Bind(int64_t{in.keeps_best}).Bind(int64_t{in.judged_by_loss}).Run());
  for (const auto& [name, value] : in.demand.labels) {
    TY_RETURN_IF_ERROR(db.Prepared(kWriteLabel).Bind(id.value).Bind(name).Bind(value).Run());
  }
  int64_t position = 0;
  for (const core::Dependency& dependency : in.dependencies) {
    Statement& insert = db.Prepared(kWriteDependency);
    insert.Bind(id.value).Bind(position++).Bind(dependency.job.value);
    TY_RETURN_IF_ERROR(insert.Bind(int64_t{dependency.ok}).Run());
  }
  return absl::OkStatus();
}

Submission TakeSubmission(const Statement& row) {
  Submission out;
  out.uid = row.Text(1);
  out.name = row.Text(2);
  out.user = row.Text(3);
  out.spec = row.Blob(4);
  out.resolved_spec = row.Blob(5);
  out.demand.count = row.Int32(6);
  out.demand.type = row.Text(7);
  out.demand.mixed = row.Int(8) != 0;
  out.priority = row.Int32(9);
  out.max_retries = row.Int32(10);
  out.time_limit_us = row.Int(11);
  out.disconnect_keep_us = row.Int(12);
  out.checkpoints_kept = row.Int32(13);
  out.cloned_from = JobId{row.Int(14)};
  if (!row.IsNull(15)) out.parent_checkpoint = core::CheckpointRef{JobId{row.Int(15)}, row.Int(16)};
  out.server_version = row.Text(17);
  out.demand.min_count = row.Int32(18);
  out.demand.memory_bytes = row.Int(19);
  out.demand.spread = row.Int(20) != 0;
  out.project = row.Text(21);
  out.not_before_us = row.Int(22);
  out.time_limit_warning_us = row.Int(23);
  out.reservation = row.Text(24);
  out.preemptible = row.Int(25) != 0;
  out.array_size = row.Int32(26);
  out.array_parallel = row.Int32(27);
  out.keeps_best = row.Int(28) != 0;
  out.judged_by_loss = row.Int(29) != 0;
  return out;
}

using Submissions = std::map<JobId, std::shared_ptr<Submission>>;

absl::StatusOr<Submissions> ReadSubmissions(Database& db) {
  Submissions all;
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadSubmissions), [&](const Statement& row) {
    all.emplace_hint(all.end(), JobId{row.Int(0)},
                     std::make_shared<Submission>(TakeSubmission(row)));
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(
      ForEachRow(db.Prepared(kReadLabels), [&](const Statement& row) -> absl::Status {
        TY_ASSIGN_OR_RETURN(auto* owner, OwnerOf(all, JobId{row.Int(0)}));
        (*owner)->demand.labels[row.Text(1)] = row.Text(2);
        return absl::OkStatus();
      }));
  TY_RETURN_IF_ERROR(
      ForEachRow(db.Prepared(kReadDependencies), [&](const Statement& row) -> absl::Status {
        TY_ASSIGN_OR_RETURN(auto* owner, OwnerOf(all, JobId{row.Int(0)}));
        (*owner)->dependencies.push_back({JobId{row.Int(2)}, row.Int(3) != 0});
        return absl::OkStatus();
      }));
  return all;
}

// A line a rank.
std::string HostingText(const core::Progress& progress) {
  std::string text;
  if (progress.hosting == nullptr) return text;
  for (const core::RankHosting& host : progress.hosting->ranks) {
    absl::StrAppendFormat(&text, "%d %d %d %d %.17g\n", host.rank, host.first_replica,
                          host.replicas, host.stage, host.samples_per_s);
  }
  return text;
}

absl::StatusOr<std::shared_ptr<const core::Hosting>> ParseHosting(absl::string_view text,
                                                                  std::string reason) {
  if (text.empty() && reason.empty()) return nullptr;
  auto hosting = std::make_shared<core::Hosting>();
  hosting->reason = std::move(reason);
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    core::RankHosting host;
    if (words.size() != 5 || !absl::SimpleAtoi(words[0], &host.rank) ||
        !absl::SimpleAtoi(words[1], &host.first_replica) ||
        !absl::SimpleAtoi(words[2], &host.replicas) || !absl::SimpleAtoi(words[3], &host.stage) ||
        !absl::SimpleAtod(words[4], &host.samples_per_s)) {
      return absl::DataLossError(absl::StrCat("'", line, "' is no hosting of a rank"));
    }
    hosting->ranks.push_back(host);
  }
  return hosting;
}

absl::Status TakeJob(const Statement& row, JobRecord& job) {
  job.array = JobId{row.Int(2)};
  FlatState flat;
  TY_RETURN_IF_ERROR(FromText(row.Text(4), flat.reason));
  flat.detail = row.Text(5);
  flat.not_before_us = row.Int(6);
  TY_RETURN_IF_ERROR(FromText(row.Text(7), flat.failure.failure_class));
  flat.failure.reason = row.Text(8);
  flat.failure.message = row.Text(9);
  TY_ASSIGN_OR_RETURN(job.state, Unflatten(row.Text(3), std::move(flat)));
  TY_RETURN_IF_ERROR(FromText(row.Text(10), job.stop_reason));
  job.attempt = row.Int32(11);
  job.fencing_token = row.Int(12);
  job.retries = row.Int32(13);
  job.failures = row.Int32(14);
  job.preemptions = row.Int32(15);
  job.run_time_us = row.Int(16);
  job.device_time_us = row.Int(17);
  job.create_us = row.Int(18);
  job.start_us = row.Int(19);
  job.end_us = row.Int(20);
  job.progress = {row.Int(21),  row.Int(22),  row.Int(23), row.Int(24),
                  row.Real(25), row.Real(26), row.Int(27)};
  job.data_digest = row.Text(28);
  job.model_digest = row.Text(29);
  job.worker_version = row.Text(30);
  job.revision = row.Int(31);
  TY_ASSIGN_OR_RETURN(job.progress.hosting, ParseHosting(row.Text(32), row.Text(33)));
  return absl::OkStatus();
}

// Whether nothing has become of the job yet but what kInsertJob writes.
bool IsAsSubmitted(const JobRecord& job) {
  JobRecord submitted;
  submitted.id = job.id;
  submitted.submission = job.submission;
  submitted.array = job.array;
  submitted.create_us = job.create_us;
  submitted.revision = job.revision;
  return job == submitted;
}

absl::Status InsertJob(Database& db, const JobRecord& job) {
  // The jobs of an array share the submission of the first.
  const JobId submission = job.array == JobId{} ? job.id : job.array;
  if (submission == job.id) TY_RETURN_IF_ERROR(WriteSubmission(db, submission, *job.submission));
  Statement& row = db.Prepared(kInsertJob);
  row.Bind(job.id.value).Bind(submission.value).Bind(job.array.value);
  return row.Bind(job.create_us).Bind(job.revision).Run();
}

absl::Status UpdateJob(Database& db, const JobRecord& job) {
  const FlatState flat = Flatten(job.state);
  const core::Progress& progress = job.progress;
  Statement& row = db.Prepared(kUpdateJob);
  row.Bind(core::job_fsm::Name(job.state));
  row.Bind(Text(flat.reason)).Bind(flat.detail).Bind(flat.not_before_us);
  row.Bind(Text(flat.failure.failure_class)).Bind(flat.failure.reason).Bind(flat.failure.message);
  row.Bind(Text(job.stop_reason)).Bind(job.attempt).Bind(job.fencing_token).Bind(job.retries);
  row.Bind(job.failures).Bind(job.preemptions).Bind(job.run_time_us).Bind(job.device_time_us);
  row.Bind(job.create_us).Bind(job.start_us).Bind(job.end_us);
  row.Bind(progress.step).Bind(progress.total_steps).Bind(progress.epoch);
  row.Bind(progress.epochs).BindReal(progress.samples_per_s);
  row.BindReal(progress.data_wait_fraction).Bind(progress.eta_us);
  row.Bind(job.data_digest).Bind(job.model_digest).Bind(job.worker_version);
  // Bound texts must live until the statement has run.
  const std::string hosting = HostingText(progress);
  row.Bind(hosting).Bind(progress.hosting == nullptr ? absl::string_view()
                                                     : progress.hosting->reason);
  row.Bind(job.revision);
  TY_RETURN_IF_ERROR(row.Bind(job.id.value).Run());
  if (db.ChangedRows() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(JobName(job.id), " is not new and not stored"));
}

}  // namespace

absl::Status WriteJob(Database& db, const JobRecord& job, bool is_new) {
  if (is_new) {
    TY_RETURN_IF_ERROR(InsertJob(db, job));
    if (IsAsSubmitted(job)) return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(UpdateJob(db, job));
  if (job.attempt == 0) return absl::OkStatus();  // an attempt brings the first metrics
  TY_RETURN_IF_ERROR(db.Prepared(kDeleteMetrics).Bind(job.id.value).Run());
  for (const auto& [name, value] : job.metrics.values) {
    TY_RETURN_IF_ERROR(
        db.Prepared(kWriteMetric).Bind(job.id.value).Bind(name).BindReal(value).Run());
  }
  return absl::OkStatus();
}

absl::Status ReadJobs(Database& db, core::Snapshot& snapshot) {
  TY_ASSIGN_OR_RETURN(Submissions submissions, ReadSubmissions(db));
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadJobs), [&](const Statement& row) -> absl::Status {
    const JobId id{row.Int(0)};
    TY_ASSIGN_OR_RETURN(auto* submission, OwnerOf(submissions, JobId{row.Int(1)}));
    JobRecord& job = snapshot.jobs.try_emplace(snapshot.jobs.end(), id)->second;
    job.id = id;
    job.submission = *submission;
    return Annotate(TakeJob(row, job), JobName(id));
  }));
  return ForEachRow(db.Prepared(kReadMetrics), [&](const Statement& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(JobRecord * job, OwnerOf(snapshot.jobs, JobId{row.Int(0)}));
    job->metrics.values[row.Text(1)] = row.Real(2);
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
