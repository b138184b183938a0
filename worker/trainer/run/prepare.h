// Brings one rank to its first step: reads the assignment, loads the data, compiles the model,
// connects the gang, and gives all ranks the same weights.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/optim/schedule.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"
#include "worker/trainer/plan/data_setup.h"
#include "worker/trainer/run/gang.h"
#include "worker/trainer/run/gang_hosting.h"
#include "worker/trainer/run/run_setup.h"
#include "worker/trainer/run/state_file.h"
#include "worker/trainer/run/step_strategy.h"

namespace trainyard::trainer {

// Everything that a rank trains with. Members are destroyed in reverse: the gang's lines and its
// exchange before the memory that they read.
struct PreparedRun {
  RunSetup setup;
  LoadedData data;
  std::unique_ptr<StepStrategy> strategy;
  Gang gang;
  GangHosting hosting;
  HostedShare share;
  engine::Schedule schedule;
  // Goes into checkpoints, which add the hosting of their step.
  RunIdentity identity;
  int64_t planned_bytes = 0;  // what the process takes
  // The number of updates that the checkpoint had done from which this run continues, or 0.
  int64_t first_step = 0;
};

// All ranks get rank 0's weights: those of the newest valid checkpoint, or those initialised from
// the seed or from a file. Ranks that disagree on spec, model or data are an error.
// `may_share_memory` means that if all ranks are on this host, gradients may be exchanged in memory
// that they map from each other.
absl::StatusOr<PreparedRun> PrepareRun(const run_dir::RunDir& dir,
                                       const run_dir::Assignment& assignment, int rank,
                                       const Connect& connect, bool may_share_memory);

}  // namespace trainyard::trainer
