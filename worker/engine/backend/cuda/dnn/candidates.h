// Chooses among the engines that cuDNN proposes: finds those that may be used, and the fastest of
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Runs each candidate on memory that holds noise, once to warm up and three times by the clock, and
// sorts the fastest to the front. A candidate that fails goes to the end. If `compared` names slots
// that the candidates write, the candidates are then compared with each other; one that differs
// goes to the end, too, and `record`, which must then not be null, tells what was found. Returns
// NOT_FOUND if all fail, RESOURCE_EXHAUSTED if the device has no room for it, and the error of a
// candidate after which the device does nothing more.
absl::Status SortBySpeed(PlanBuilder& builder, const Graph& graph,
                         std::vector<Candidate>& candidates,
                         const std::vector<WrittenSlot>& compared = {},
                         PlanRecord* record = nullptr);

}  // namespace trainyard::engine::cuda::dnn
