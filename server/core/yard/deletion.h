// Deletes jobs: decides what is deleted and what must stay.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/yard/inputs.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// The type of the only event that a deleted job has.
inline constexpr char kJobDeleted[] = "JOB_DELETED";

struct Deletion {
  bool is_gone = false;   // the job was deleted before, so nothing is left to do
  bool is_whole = false;  // the job itself is deleted, with all that it has
  bool logs = false;
  bool metrics = false;
  std::vector<CheckpointRef> checkpoints;
  // These stay until the jobs that are to start from them have ended.
  std::vector<CheckpointRef> kept_checkpoints;
  // The submission stays, because jobs were cloned from it.
  bool keeps_spec = false;

  // Returns true if nothing is left to delete.
  bool empty() const { return !is_whole && !logs && !metrics && checkpoints.empty(); }
};

// Returns what DeleteJob would do; parts that were deleted before are left out. Returns
// JOB_NOT_FOUND for a number that no job has had, and JOB_STATE_CONFLICT if the job has not ended,
// or if it is to be deleted as a whole, has not succeeded, and another job waits for its success.
absl::StatusOr<Deletion> PlanDeletion(const YardState& state, const DeleteJob& in);

// Deletes what PlanDeletion names.
absl::Status Delete(YardState& state, const DeleteJob& in, Now now);

// The submission of a job, which may be deleted if the submission stayed. It is null if there is
// none, and known by `id`.
struct KnownSubmission {
  JobId id;
  const Submission* submission = nullptr;
};
KnownSubmission FindSubmission(const Snapshot& snapshot, JobId job);

}  // namespace trainyard::core
