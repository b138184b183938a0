// The deletion of jobs: what goes, what must stay, and what becomes of both.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/yard/inputs.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

struct Deletion {
  bool is_gone = false;  // the job was deleted before: nothing is left to do
  std::vector<CheckpointRef> checkpoints;
  // They stay until the jobs have ended that are to start from them.
  std::vector<CheckpointRef> kept_checkpoints;
  // The submission stays, for others were cloned from a job of it.
  bool keeps_spec = false;
};

// What DeleteJob would do. JOB_NOT_FOUND for a number that no job has had; JOB_STATE_CONFLICT where
// the job has not ended, or has not succeeded and another waits for its success.
absl::StatusOr<Deletion> PlanDeletion(const YardState& state, const DeleteJob& in);

// Does it.
absl::Status Delete(YardState& state, const DeleteJob& in, Now now);

// The submission of a job, also of one that was deleted while the submission stayed; null where
// there is none. It is known by `id`.
struct KnownSubmission {
  JobId id;
  const Submission* submission = nullptr;
};
KnownSubmission FindSubmission(const Snapshot& snapshot, JobId job);

}  // namespace trainyard::core
