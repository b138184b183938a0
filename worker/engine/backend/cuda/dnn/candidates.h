// From an engine that cuDNN proposes to one that may be taken, and from those to the fastest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/engines.h"
#include "worker/engine/backend/cuda/dnn/planner_options.h"

namespace trainyard::engine::cuda::dnn {

// What a problem allows beyond the planner's options.
struct Precision {
  bool is_f32 = false;
  bool tf32 = false;
};

// Whether the engine keeps what was asked for: 32-bit sums and the type of the factors always; with
// f32 and without tf32 no tensor cores, which would round the factors; where it must be
// deterministic, one order of sums.
bool IsAllowed(const EngineConfig& engine, Precision precision, bool deterministic);

struct Candidate {
  BuiltPlan plan;
  std::string name;
  double microseconds = 0;
};

// Up to `max` plans that are allowed, can be built and fit into the workspace, in cuDNN's order,
// each once. Nothing beyond `max` is built. NOT_FOUND with the last refusal where there is none.
absl::StatusOr<std::vector<Candidate>> BuildCandidates(const Target& target, const Graph& graph,
                                                       Precision precision,
                                                       const PlannerOptions& options, int max);

// Runs each of them on memory of its own that holds noise, once to warm up and three times by the
// clock, and puts the fastest first. One that fails goes to the end. RESOURCE_EXHAUSTED where the
// device has no room for it.
absl::Status SortBySpeed(const Target& target, const Graph& graph,
                         std::vector<Candidate>& candidates);

}  // namespace trainyard::engine::cuda::dnn
