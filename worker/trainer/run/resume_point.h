// Finds the point from which a run continues: the newest valid checkpoint, or the weights that the
// spec names.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/backend/backend.h"
#include "worker/trainer/run/run_setup.h"
#include "worker/trainer/run/state_file.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::trainer {

struct ResumePoint {
  std::string path;   // of a checkpoint; empty if the run starts from the beginning
  StateRecord state;  // what the checkpoint records
};

// Rank 0 looks for the newest checkpoint; the other ranks get its state later, and find nothing.
absl::StatusOr<ResumePoint> FindResumePoint(const RunSetup& setup);

// Fills the state of the whole model: from the checkpoint, or from the seed and, if the spec says
// so, from a file. A run that resumes has its own weights and does not read that file again.
absl::StatusOr<RestoredState> InitialiseOrRestore(const ResumePoint& resume, const RunSetup& setup,
                                                  engine::ModelState& state);

}  // namespace trainyard::trainer
