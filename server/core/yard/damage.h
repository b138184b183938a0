// Says what follows from a damaged checkpoint. The server marks a checkpoint as damaged only after
// it has hashed the files itself (JudgeCheckpoint), so no worker can make it forget one. A job
// resumes from the newest checkpoint that is whole, and each failed start from a damaged one
// removes one from the choice, so the job always gets on.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/core/lifecycle/snapshot.h"

namespace trainyard::core {

// Returns a clause that names the newest whole checkpoints of a job, for people.
std::string WholeCheckpointsText(const Snapshot& snapshot, JobId job);

// Returns CHECKPOINT_DAMAGED if a job cannot start from the checkpoint, which must exist.
absl::Status CheckStart(const Snapshot& snapshot, const CheckpointRef& id);

// Returns how a worker's claim that the checkpoint of the attempt is damaged counts; other outcomes
// come back as they are. A claim that the server has confirmed costs the job nothing if the
// checkpoint is its own, and ends a job that was to start from another job's. A claim that it has
// not confirmed is a failure of the worker to read, like any other (CORRUPT_FILE).
Outcome JudgeClaim(const Snapshot& snapshot, const AttemptRecord& attempt, Outcome outcome);

}  // namespace trainyard::core
