// Chooses among the engines that cuDNN proposes: finds those that may be used, and the fastest of
// them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/backend/cuda/dnn/bindings.h"
#include "worker/engine/backend/cuda/dnn/engines.h"
#include "worker/engine/backend/cuda/dnn/exactness.h"
#include "worker/engine/backend/cuda/dnn/plan_builder.h"
#include "worker/engine/backend/cuda/dnn/planner_options.h"
#include "worker/engine/backend/cuda/tuning/plan_record.h"

namespace trainyard::engine::cuda::dnn {

// The freedom that a problem gives beyond the planner's options.
struct Precision {
  bool is_f32 = false;
  bool tf32 = false;
};

// Returns true if the engine keeps the precision that was asked for. Sums must be of 32 bits, and
// factors must keep their type. With f32 and without tf32 there must be no tensor cores, which
// would round the factors. If it must be deterministic, sums must be taken in one order.
bool IsAllowed(const EngineConfig& engine, Precision precision, bool deterministic);

struct Candidate {
  BuiltPlan plan;
  std::string name;
  double microseconds = 0;
};

struct CandidateOptions {
  const PlannerOptions& planner;
  Precision precision = {};
  int max = 1;  // the most that are found
  // If it names an engine with its settings, that one comes first, and then the same engine with
  // other settings.
  absl::string_view preferred = "";
  // False if plans are not to be run. Whether they could be built is then not known.
  bool builds = true;
};

// Finds plans that are allowed, can be built and fit into the workspace, each once, in cuDNN's
// order. Returns NOT_FOUND, with the last refusal, if there is none.
absl::StatusOr<std::vector<Candidate>> FindCandidates(PlanBuilder& builder, const Graph& graph,
                                                      const CandidateOptions& options);

// Says how candidates are compared.
struct Comparison {
  std::vector<WrittenSlot> written = {};  // what they write; if it is empty, nothing is compared
  // Computes the same without cuDNN, on a workspace of its own; may be empty.
  std::function<absl::Status(const Bindings&, void* workspace, cudaStream_t stream)> arbiter =
      nullptr;
  int64_t arbiter_workspace_bytes = 0;
};

// Runs each candidate on memory that holds noise, once to warm up and three times by the clock, and
// sorts the fastest to the front. A candidate that fails goes to the end. If they are to be
// compared, one that differs goes to the end, too, and `record`, which must then not be null, tells
// what was found. If all differ from the arbiter, they stay in the order of their speed. Returns
// NOT_FOUND if all fail, RESOURCE_EXHAUSTED if the device has no room for it, and the error of a
// candidate after which the device does nothing more.
absl::Status SortBySpeed(PlanBuilder& builder, const Graph& graph,
                         std::vector<Candidate>& candidates, const Comparison& comparison = {},
                         PlanRecord* record = nullptr);

}  // namespace trainyard::engine::cuda::dnn
