// Copies of the weights that products read: in the type of the activations, with padded channels,
// merged where convolutions were. One block of memory, written anew when the parameters change.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/kernels/weights.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cuda {

// What one product reads: a weight or bias, or those of several layers together.
struct WeightCopy {
  // Elements of a row that are the parameter's own, and from row to row in the copy.
  int64_t inner = 1;
  int64_t stride = 1;
  int64_t bytes = 0;  // 0: products read the parameter itself
  Type type = Type::kF32;
  void* data = nullptr;
};

class PackedWeights {
 public:
  // Of all products in both steps. `parameters`: flat, as the layout says.
  static absl::StatusOr<PackedWeights> Create(const StepGraph& training,
                                              const StepGraph& evaluation,
                                              const ReductionLayout& layout, float* parameters,
                                              Type type, Backing backing);

  const WeightCopy& copy(const std::vector<ValueId>& parameters) const {
    return copies_.at(parameters);
  }
  // Writes all copies anew.
  void Refresh(cudaStream_t stream) const;
  // Writes those copies that the update does not: of parameters that have a second one.
  void RefreshSecond(cudaStream_t stream) const;

  int64_t bytes() const { return memory_.bytes() + places_.bytes() + first_chunks_.bytes(); }
  // Places in device memory; the first one of a parameter by its offset, for the update.
  const PackedWeight* places() const { return places_.as<PackedWeight>(); }
  const std::map<int64_t, int32_t>& place_of_offset() const { return place_of_offset_; }

 private:
  void AddCopies(const StepGraph& step, Type type);
  absl::Status Lay(const ReductionLayout& layout, float* parameters, Backing backing);
  void Refresh(int64_t first, cudaStream_t stream) const;

  const float* parameters_ = nullptr;
  std::map<std::vector<ValueId>, WeightCopy> copies_;
  DeviceBuffer memory_;
  // First the places that the update writes, then the second ones of a parameter.
  DeviceBuffer places_;
  DeviceBuffer first_chunks_;  // of places: prefix sums, one more than places
  std::vector<int32_t> chunks_;
  int64_t second_ = 0;  // places before the second ones
  int64_t place_count_ = 0;
  std::map<int64_t, int32_t> place_of_offset_;
};

// Names of a convolution's parameters among a node's inputs from `first` on: weights, then biases.
std::vector<ValueId> ConvWeightsOf(const Node& node, size_t first = 1);
std::vector<ValueId> ConvBiasesOf(const Node& node);

}  // namespace trainyard::engine::cuda
