// cuDNN's graphs: convolutions and attention of one shape each, planned once.
//
// A plan is one engine of cuDNN, with its settings, for one problem. Candidates come from cuDNN's
// heuristics; those that cannot be built, need too much workspace or break determinism are left
// out; of the rest the fastest is taken, measured on the device, or the first one where nothing is
// measured. What was chosen is kept in a cache file by problem, architecture and version of cuDNN.
//
// Plans can be made without any GPU too, for a device that a JSON text describes: so CI sees
// whether every graph that the models need has a plan, and the memory of a step can be planned.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/plan.h"
#include "worker/engine/backend/cuda/dnn/planner_options.h"
#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// Not thread-safe. Plans must not outlive it.
class Planner {
 public:
  virtual ~Planner() = default;
  // For the current device. UNAVAILABLE with what to do where there is no GPU or no driver.
  static absl::StatusOr<std::unique_ptr<Planner>> ForDevice(const PlannerOptions& options);
  // For a device described in cuDNN's JSON. INVALID_ARGUMENT for a text that is none.
  static absl::StatusOr<std::unique_ptr<Planner>> ForDescription(const std::string& json,
                                                                 const PlannerOptions& options);

  // NOT_FOUND where cuDNN has none for it. The same problem gives the same plan.
  virtual absl::StatusOr<const Plan*> Find(const ConvProblem& problem) = 0;
  virtual absl::StatusOr<const Plan*> Find(const AttentionProblem& problem) = 0;
  // For before a stream ends on which plans ran: cuDNN's handle would be left with it.
  virtual void ReleaseStream() = 0;
  // Writes the cache file where something new was chosen.
  virtual absl::Status SaveCache() = 0;
  // The current device in cuDNN's JSON; of ForDescription, the text.
  virtual absl::StatusOr<std::string> DeviceDescription() = 0;
};

}  // namespace trainyard::engine::cuda::dnn
