// cuDNN's engines for a graph: which ones its heuristics propose, what they promise, and their
// plans.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/descriptor.h"
#include "worker/engine/backend/cuda/dnn/graph.h"

namespace trainyard::engine::cuda::dnn {

// What plans are made for: a device behind its handle, or a description of one.
struct Target {
  cudnnHandle_t handle = nullptr;
  Descriptor device;        // of a description; empty beside a handle
  std::string description;  // JSON; beside a handle it is read when it is asked for
  std::string name;         // "NVIDIA H200 sm90", for the keys of the cache

  bool has_device() const { return handle != nullptr; }
};

// An engine with its settings.
struct EngineConfig {
  Descriptor config;
  std::string name;  // "engine 40 {24=3 2=17}": cuDNN's numbers of engine, settings and values
  std::vector<cudnnBackendNumericalNote_t> numerical_notes;
  std::vector<cudnnBackendBehaviorNote_t> behavior_notes;

  bool has(cudnnBackendNumericalNote_t note) const;
  bool has(cudnnBackendBehaviorNote_t note) const;
};

// Returns the engines in the order in which cuDNN prefers them; none where the mode does not know
// the graph.
absl::StatusOr<std::vector<EngineConfig>> AskHeuristics(const Target& target, const Graph& graph,
                                                        cudnnBackendHeurMode_t mode);

// An executable plan. Building it returns UNIMPLEMENTED where the engine turns out not to support
// the graph.
struct BuiltPlan {
  Descriptor plan;
  int64_t workspace_bytes = 0;
};
absl::StatusOr<BuiltPlan> BuildPlan(const Target& target, const EngineConfig& engine);
// `json` is what SerializePlan gave, with the same version of cuDNN and for the same device.
absl::StatusOr<BuiltPlan> DeserializePlan(const Target& target, const std::string& json);
absl::StatusOr<std::string> SerializePlan(const BuiltPlan& plan);

}  // namespace trainyard::engine::cuda::dnn
