// Turns the spec into the model's graph, the optimizer and the schedule. Specs must come from
// ParseSpec, with their defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/step_choices.h"
#include "worker/engine/optim/schedule.h"

namespace trainyard::trainer {

absl::StatusOr<engine::Graph> BuildModel(const v1::ModelSpec& spec);

// Returns true if a row's result depends on the other rows of its batch (batch norm). Then each
// replica must be computed by itself, while otherwise all replicas of a rank may be one batch.
bool CouplesRows(const engine::Graph& model);

engine::OptimizerSpec MakeOptimizer(const v1::OptimizerSpec& spec);
// Makes the schedule. Epochs become steps, rounded to the nearest; rates follow the linear scaling
// rule.
engine::Schedule MakeSchedule(const v1::JobSpec& spec, int64_t steps_per_epoch,
                              int64_t total_steps);

// Returns the spec's replicas, or one for each rank if it leaves them open.
int ReplicaCount(const v1::TrainSpec& spec, int world_size);

using engine::kCudaBackend;

struct CompileTarget {
  absl::string_view backend = "cpu";
  int rank = 0;
  int world_size = 1;
  int threads = 1;
  // True if the ranks of this host may map the memory through which gradients are exchanged.
  bool shares_memory = false;
  // The number of replicas that may be computed as one batch of this many groups, with batch norm
  // keeping them apart. It is less if the rank hosts fewer, and one if the spec needs each by
  // itself (memory.h says how many fit).
  int replicas_at_once = 1;
  // The choices of another rank (engine::CompileOptions::choices).
  std::string choices = {};
  // The sum over the ranks that synchronised batch norm needs. A plan can do without it.
  engine::SumOverRanks sum_statistics = nullptr;
};

// The graph and the options that the engine compiles for a rank, for the rows that it computes at
// once.
struct PreparedModel {
  engine::Graph graph;
  engine::OptimizerSpec optimizer;
  engine::CompileOptions options;
  // True if replicas are kept apart: each is a batch, or a group of one (options.max_groups).
  bool computes_replicas_alone = false;
  bool couples_rows = false;
  int64_t evaluation_rows = 1;  // at once, whatever options.max_rows has room for
  int64_t hosted_rows = 1;      // of a full global batch, over all replicas of the rank
};
// Returns INVALID_SPEC for a microbatch that would separate rows which batch norm couples. With
// stages, options.owned is left to whoever cuts the model.
absl::StatusOr<PreparedModel> PrepareModel(const v1::JobSpec& spec, const CompileTarget& target);

// Returns the offsets at which the entries of the reduction end. They follow from the model, or
// from its stage, and so are the same on all ranks.
std::vector<int64_t> ReadyEnds(const engine::Graph& model);

// Returns true if each of `ranks` ranks that sum their gradients keeps only a part of the
// optimizer's slots.
bool DividesSlots(const v1::JobSpec& spec, absl::string_view backend, int ranks);
// Returns what a rank then owns (engine::CompileOptions::owned) of the parameters of `graph`, which
// is the model or its stage, or nothing if slots are not divided.
std::vector<engine::ElementRange> OwnedRanges(const v1::JobSpec& spec, absl::string_view backend,
                                              const engine::Graph& graph, int rank, int ranks);

// The step of `rank`, compiled for the rows of a full global batch that it computes at once.
struct CompiledModel {
  std::unique_ptr<engine::Executable> executable;
  int64_t planned_bytes = 0;  // of the process; 0 if not planned
  engine::Precision precision = engine::Precision::kF32;
  int64_t max_rows = 1;
  int64_t max_groups = 1;
  int64_t evaluation_rows = 1;
  bool computes_replicas_alone = false;
  bool syncs_statistics = false;    // with CompileTarget::sum_statistics
  std::vector<int64_t> ready_ends;  // of the reduction's ranges, in the order of backward
};
absl::StatusOr<CompiledModel> CompileModel(const v1::JobSpec& spec, const CompileTarget& target);

}  // namespace trainyard::trainer
