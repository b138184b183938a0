// Deletes jobs that have ended. Their rows are deleted in the commit of the turn. Files, logs and
// metrics are deleted once it is on disk, and again at the next start if the server dies in
// between.
#include "server/core/yard/deletion.h"

#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

// Returns the number under which the job's submission is known.
JobId SubmissionOf(const JobRecord& job) {
  return job.array == JobId{} ? job.id : job.array;
}

// A failed job must stay known while jobs wait for its success, or these would start.
absl::Status CheckNobodyWaits(const YardState& state, const JobRecord& job) {
  if (std::holds_alternative<job_fsm::Succeeded>(job.state)) return absl::OkStatus();
  const auto& jobs = state.snapshot().jobs;
  for (const JobId submission : state.lineage.WaitingForSuccess(job.id)) {
    for (auto it = jobs.lower_bound(submission);
         it != jobs.end() && SubmissionOf(it->second) == submission; ++it) {
      if (!job_fsm::IsFinal(it->second.state)) {
        return error::JobStateConflict(
            JobName(job.id), job_fsm::Name(job.state),
            absl::StrCat("deleted while job '", JobName(it->first),
                         "' waits for its success; cancel that one first"));
      }
    }
  }
  return absl::OkStatus();
}

// Returns true if no other job of its submission is left.
bool IsLast(const Snapshot& snapshot, const JobRecord& job) {
  if (job.array == JobId{}) return true;
  const auto end = snapshot.jobs.lower_bound(JobId{job.array.value + JobsOf(*job.submission)});
  for (auto it = snapshot.jobs.lower_bound(job.array); it != end; ++it) {
    if (it->first != job.id) return false;
  }
  return true;
}

// Notes in the job, which stays, that parts of it are gone.
void DeleteParts(YardState& state, const DeleteJob& in, const Deletion& plan, Now now) {
  if (plan.empty()) return;
  JobRecord& job = state.ledger.EditJob(in.job);  // it also shows its newest checkpoint
  const auto tell = [&](const char* type, std::string message) {
    state.ledger.AddEvent(now.wall_us, JobName(in.job), type, in.actor, std::move(message));
  };
  if (!plan.checkpoints.empty()) {
    tell("CHECKPOINTS_DELETED", absl::StrCat(plan.checkpoints.size(), " deleted, ",
                                             plan.kept_checkpoints.size(), " kept"));
  }
  if (plan.logs) tell("LOGS_DELETED", "");
  if (plan.metrics) tell("METRICS_DELETED", "");
  job.logs_deleted |= plan.logs;
  job.metrics_deleted |= plan.metrics;
  if (const StreamBytes* known = state.accounts.FindStreams(in.job); known != nullptr) {
    state.accounts.NoteStreams(*job.submission, in.job,
                               {plan.logs ? 0 : known->logs, plan.metrics ? 0 : known->metrics});
  }
}

// Drops a submission without jobs, and those that were kept only for its sake.
void DropSubmission(YardState& state, JobId id, Submission submission) {
  while (true) {
    state.ledger.DropSubmission(id);
    state.lineage.Remove(id, submission);
    const auto& kept = state.snapshot().kept_submissions;
    auto origin = kept.upper_bound(submission.cloned_from);
    if (origin == kept.begin()) return;
    --origin;
    id = origin->first;
    if (submission.cloned_from.value >= id.value + JobsOf(origin->second)) return;
    if (state.lineage.IsCloned(id, origin->second)) return;
    submission = Submission(origin->second);
  }
}

}  // namespace

KnownSubmission FindSubmission(const Snapshot& snapshot, JobId job) {
  const auto holds = [job](JobId id, const Submission& submission) {
    return id.value <= job.value && job.value < id.value + JobsOf(submission);
  };
  // Look at the job itself. If its array has lost it, look at the next job or the one before.
  auto near = snapshot.jobs.lower_bound(job);
  for (int i = 0; i < 2; ++i) {
    if (near != snapshot.jobs.end() &&
        holds(SubmissionOf(near->second), *near->second.submission)) {
      return {SubmissionOf(near->second), near->second.submission.get()};
    }
    if (near == snapshot.jobs.begin()) break;
    --near;
  }
  const auto kept = snapshot.kept_submissions.upper_bound(job);
  if (kept == snapshot.kept_submissions.begin()) return {};
  const auto& [id, submission] = *std::prev(kept);
  return holds(id, submission) ? KnownSubmission{id, &submission} : KnownSubmission{};
}

absl::StatusOr<Deletion> PlanDeletion(const YardState& state, const DeleteJob& in) {
  Deletion plan;
  const auto found = state.snapshot().jobs.find(in.job);
  if (found == state.snapshot().jobs.end()) {
    plan.is_gone = in.job.value >= 1 && in.job.value < state.snapshot().next_job;
    if (!plan.is_gone) return error::JobNotFound(JobName(in.job));
    return plan;
  }
  const JobRecord& job = found->second;
  if (job.revision == 0) return error::JobNotFound(JobName(in.job));  // it is not on disk yet
  if (!job_fsm::IsFinal(job.state)) {
    return error::JobStateConflict(JobName(in.job), job_fsm::Name(job.state),
                                   "deleted before it has ended; cancel it first");
  }
  plan.is_whole = !in.parts.any();
  if (plan.is_whole) TY_RETURN_IF_ERROR(CheckNobodyWaits(state, job));
  const auto& checkpoints = state.snapshot().checkpoints;
  for (auto it = checkpoints.lower_bound({in.job, std::numeric_limits<int64_t>::min()});
       it != checkpoints.end() && it->first.job == in.job; ++it) {
    if (!plan.is_whole && (!in.parts.checkpoints || it->first.is_outputs())) continue;
    const bool is_needed = state.parents.count(it->first) > 0;
    (is_needed ? plan.kept_checkpoints : plan.checkpoints).push_back(it->first);
  }
  plan.logs = (plan.is_whole || in.parts.logs) && !job.logs_deleted;
  plan.metrics = (plan.is_whole || in.parts.metrics) && !job.metrics_deleted;
  plan.keeps_spec = plan.is_whole && state.lineage.IsCloned(SubmissionOf(job), *job.submission);
  return plan;
}

absl::Status Delete(YardState& state, const DeleteJob& in, Now now) {
  TY_ASSIGN_OR_RETURN(const Deletion plan, PlanDeletion(state, in));
  if (plan.is_gone) return absl::OkStatus();
  Stepper stepper(state, now);
  for (const CheckpointRef& id : plan.checkpoints) {
    stepper.CountStored(state.snapshot().checkpoints.at(id), -1);
    state.ledger.DeleteCheckpoint(id);
  }
  if (!plan.is_whole) {
    DeleteParts(state, in, plan, now);
    return absl::OkStatus();
  }
  state.accounts.ForgetStreams(*state.ledger.job(in.job).submission, in.job);
  // Checkpoints that stay count against nobody's quota.
  for (const CheckpointRef& id : plan.kept_checkpoints) {
    stepper.CountStored(state.snapshot().checkpoints.at(id), -1);
  }
  const JobRecord& job = state.ledger.job(in.job);
  const JobId id = SubmissionOf(job);
  const std::shared_ptr<const Submission> submission = job.submission;
  const bool is_last = IsLast(state.snapshot(), job);
  state.ledger.DeleteJob(in.job);
  if (is_last && state.lineage.IsCloned(id, *submission)) {
    state.ledger.KeepSubmission(id, *submission);
  } else if (is_last) {
    DropSubmission(state, id, *submission);
  }
  state.ledger.AddEvent(now.wall_us, JobName(in.job), kJobDeleted, in.actor, "");
  return absl::OkStatus();
}

}  // namespace trainyard::core
