// Takes jobs in that ran elsewhere. Nothing of them is ever placed, so they are records and nothing
// else: their attempts have no parts, which keeps every worker from writing to them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bundle_errors.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/core/yard/stepper.h"
#include "server/core/yard/yard.h"

namespace trainyard::core {
namespace {

// Returns the id under which this request is known, or is to be noted. A request whose job was
// deleted stays known, so the next import has another id.
std::string RequestIdFor(const Snapshot& snapshot, const std::string& request_id) {
  std::string id = request_id;
  for (int round = 2;; ++round) {
    const auto known = snapshot.requests.find(id);
    if (known == snapshot.requests.end() || snapshot.jobs.contains(known->second.job)) return id;
    id = absl::StrCat(request_id, "#", round);
  }
}

}  // namespace

absl::StatusOr<Reply> Yard::Take(const ImportJob& in, Now now) {
  TY_CHECK(in.imported != nullptr && in.imported->job.submission != nullptr);
  const ImportedJob& imported = *in.imported;
  const Submission& submission = *imported.job.submission;
  TY_CHECK(submission.is_imported() && job_fsm::IsFinal(imported.job.state));
  const std::string request_id =
      in.request_id.empty() ? "" : RequestIdFor(snapshot(), in.request_id);
  if (const auto known = snapshot().requests.find(request_id);
      !request_id.empty() && known != snapshot().requests.end()) {
    if (known->second.request_hash != in.request_hash) {
      return error::RequestIdReused(in.request_id);
    }
    return Reply{known->second.job, /*existed=*/true};
  }
  TY_RETURN_IF_ERROR(state_.accounts.CheckStored(snapshot().quotas, submission, 0));
  TY_RETURN_IF_ERROR(state_.accounts.CheckRate(snapshot().quotas, submission, now));
  state_.accounts.ChargeSubmission(snapshot().quotas, submission, now);

  JobRecord job = imported.job;
  job.create_us = now.wall_us;
  const JobId id = state_.ledger.AddJob(std::move(job));
  for (AttemptRecord attempt : imported.attempts) {
    TY_CHECK(attempt_fsm::IsFinal(attempt.state) && attempt.parts.empty());
    attempt.id.job = id;
    state_.ledger.AddAttempt(std::move(attempt));
  }
  if (!request_id.empty()) {
    state_.ledger.AddRequest({request_id, in.request_hash, id, now.wall_us});
  }
  for (const EventRecord& event : imported.events) {
    state_.ledger.AddEvent(event.time_us, absl::StrCat(JobName(id), event.resource), event.type,
                           kImportedActor, event.message);
  }
  state_.ledger.AddEvent(now.wall_us, JobName(id), "JOB_IMPORTED", in.actor,
                         "what stands before this happened elsewhere");
  state_.lineage.Add(id, submission);
  return Reply{id, /*existed=*/false};
}

absl::StatusOr<AttemptId> Yard::CheckImport(JobId id, int64_t bytes) const {
  const JobRecord* job = FindJob(id);
  if (job == nullptr) return error::JobNotFound(JobName(id));
  if (!job->submission->is_imported()) return error::NotImported(JobName(id));
  if (job->attempt == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job '", JobName(id), "' never ran, so it has neither metrics nor checkpoints"));
  }
  // A question whether all is there takes no room.
  if (bytes > 0) {
    TY_RETURN_IF_ERROR(state_.accounts.CheckStored(snapshot().quotas, *job->submission, bytes));
  }
  return AttemptId{id, job->attempt};
}

absl::StatusOr<Reply> Yard::Take(const CommitImport& in, Now now) {
  CheckpointRecord checkpoint;
  checkpoint.id = in.checkpoint;
  checkpoint.files = in.files;
  const CheckpointRecord* known = FindCheckpoint(in.checkpoint);
  const bool is_same = known != nullptr && known->is_whole();
  TY_ASSIGN_OR_RETURN(const AttemptId attempt,
                      CheckImport(in.checkpoint.job, is_same ? 0 : checkpoint.bytes()));
  if (is_same) return Reply{in.checkpoint.job, /*existed=*/true};
  checkpoint.attempt = attempt.number;
  std::sort(checkpoint.files.begin(), checkpoint.files.end(),
            [](const CheckpointFile& a, const CheckpointFile& b) { return a.name < b.name; });
  checkpoint.create_us = in.create_us == 0 ? now.wall_us : in.create_us;
  checkpoint.evaluation = in.evaluation;
  Stepper stepper(state_, now);
  if (known != nullptr) {
    stepper.CountStored(*known, -1);
    state_.ledger.DeleteCheckpoint(in.checkpoint);
  }
  stepper.AddCheckpoint(std::move(checkpoint), in.actor);
  return Reply{in.checkpoint.job, /*existed=*/false};
}

}  // namespace trainyard::core
