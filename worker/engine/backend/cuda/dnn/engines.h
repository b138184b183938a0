// Wraps cuDNN's engines for a graph: asks its heuristics for them, reads what they promise, and
// builds their plans.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/descriptor.h"
#include "worker/engine/backend/cuda/dnn/graph.h"

namespace trainyard::engine::cuda::dnn {

// The target for which plans are made: a device behind its handle, or a description of one.
struct Target {
  cudnnHandle_t handle = nullptr;
  Descriptor device;        // of a description; empty if there is a handle
  std::string description;  // JSON; with a handle it is read when it is needed
  std::string name;         // "NVIDIA H200 sm90", for the keys of the cache
  int device_index = 0;     // CUDA's number of the device behind the handle

  bool has_device() const { return handle != nullptr; }
};

// An engine with its settings.
struct EngineConfig {
  Descriptor config;
  std::string name;  // "engine 40 {24=3 2=17}": cuDNN's numbers of engine, settings and values
  std::vector<cudnnBackendNumericalNote_t> numerical_notes;
  std::vector<cudnnBackendBehaviorNote_t> behavior_notes;
  int64_t workspace_bytes = 0;  // of a plan of it

  bool has(cudnnBackendNumericalNote_t note) const;
  bool has(cudnnBackendBehaviorNote_t note) const;
};

// Returns the engines in the order in which cuDNN prefers them, or none if the mode does not know
// the graph.
absl::StatusOr<std::vector<EngineConfig>> AskHeuristics(const Target& target, const Graph& graph,
                                                        cudnnBackendHeurMode_t mode);

// An executable plan, which borrows its target. Building it returns UNIMPLEMENTED if the engine
// turns out not to support the graph.
struct BuiltPlan {
  Descriptor plan;
  int64_t workspace_bytes = 0;
  const Target* target = nullptr;  // for which it was made, and whose handle runs it
};
absl::StatusOr<BuiltPlan> BuildPlan(const Target& target, const EngineConfig& engine);
// Loads a plan. `json` must come from SerializePlan, with the same version of cuDNN and for the
// same device.
absl::StatusOr<BuiltPlan> DeserializePlan(const Target& target, const std::string& json);
absl::StatusOr<std::string> SerializePlan(const BuiltPlan& plan);

}  // namespace trainyard::engine::cuda::dnn
