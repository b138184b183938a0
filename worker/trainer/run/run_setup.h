// Reads from the assignment what it says of one rank's run, and derives what follows from it. The
// result never changes.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_options.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"

namespace trainyard::trainer {

// The ranks of a gang form a grid: rank r computes stage r % stages of pipeline r / stages. If the
// model is not cut, every rank is a pipeline of one stage.
struct GridPlace {
  int stage = 0;
  int stages = 1;
  int pipeline = 0;
  int pipelines = 1;

  bool is_last_stage() const { return stage + 1 == stages; }
};

struct RunSetup {
  run_dir::RunDir run_dir{""};
  run_dir::Assignment assignment;
  int rank = 0;
  v1::JobSpec spec;
  data::DatasetOptions dataset_options;
  GridPlace place;
  int replicas = 1;
  int64_t memory_bytes = 0;    // of the rank's device
  bool shares_memory = false;  // with all other ranks of the gang
  bool is_bitwise = false;

  int world_size() const { return assignment.world_size; }
  const run_dir::RankAssignment& mine() const { return *assignment.FindRank(rank); }
};

// Reads the setup. `may_share_memory` allows ranks that are all on this host to map each other's
// memory. Returns INVALID_ARGUMENT if the ranks cannot be divided into the spec's stages, or the
// replicas among the ranks.
absl::StatusOr<RunSetup> ReadRunSetup(const run_dir::RunDir& dir,
                                      const run_dir::Assignment& assignment, int rank,
                                      bool may_share_memory);

}  // namespace trainyard::trainer
