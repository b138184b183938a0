// Plans convolutions and attention of one shape each, once, as graphs of cuDNN.
//
// A plan is one engine of cuDNN, with its settings, for one problem. Candidates come from cuDNN's
// heuristics. Those that cannot be built, need too much workspace or break determinism are left
// out. Of the rest the fastest is taken, measured on the device. Where nothing may be measured, the
// engine is taken that was chosen for the same problem with another number of rows, or else the
// first one. Each choice is kept in a file, by problem, architecture and version of cuDNN.
//
// Plans can also be made without a GPU, for a device that a JSON text describes. That is how CI
// sees whether every graph that the models need has a plan, and how the memory of a step is
// planned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/plan.h"
#include "worker/engine/backend/cuda/dnn/planner_options.h"
#include "worker/engine/backend/cuda/dnn/problem.h"
#include "worker/engine/backend/cuda/tuning/effort.h"

namespace trainyard::engine::cuda::dnn {

// A planner. The class is not thread-safe. Plans must not outlive it.
class Planner {
 public:
  virtual ~Planner() = default;
  // Makes a planner for the current device. Returns UNAVAILABLE, with what to do, if there is no
  // GPU or no driver.
  static absl::StatusOr<std::unique_ptr<Planner>> ForDevice(const PlannerOptions& options);
  // Makes a planner for a device described in cuDNN's JSON. Returns INVALID_ARGUMENT if the text
  // describes none.
  static absl::StatusOr<std::unique_ptr<Planner>> ForDescription(const std::string& json,
                                                                 const PlannerOptions& options);

  // Returns the plan for a problem, or NOT_FOUND if cuDNN has none. The same problem gets the same
  // plan each time, except that the first kMeasure may find a faster one than kInherit did, and
  // that one of kEstimate cannot be run.
  virtual absl::StatusOr<const Plan*> Find(const ConvProblem& problem, Effort effort) = 0;
  virtual absl::StatusOr<const Plan*> Find(const AttentionProblem& problem, Effort effort) = 0;
  // Returns the choices that were measured, or that an earlier run has measured, each as a text.
  virtual std::vector<std::string> MeasuredChoices() = 0;
  // Keeps a choice of another planner, and follows it from here on. A text that is none, or of
  // another version, is logged and ignored.
  virtual void TakeChoice(const std::string& text) = 0;
  // Returns the largest workspace that a plan may have.
  virtual int64_t workspace_bytes_max() const = 0;
  // Gives back the memory of the device that choosing takes beside the plans. The next choice may
  // take it again.
  virtual void EndChoosing() = 0;
  // Must be called before a stream ends on which plans ran, since cuDNN's handle would keep it.
  virtual void ReleaseStream() = 0;
  // Describes the current device in cuDNN's JSON; with ForDescription, returns that text.
  virtual absl::StatusOr<std::string> DeviceDescription() = 0;
};

}  // namespace trainyard::engine::cuda::dnn
