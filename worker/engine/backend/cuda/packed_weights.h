// Keeps copies of the weights in the form in which products read them: in the type of the
// activations, with padded channels, and merged if convolutions were merged. They lie in one block
// of memory and are written again whenever the parameters change.
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

// The parameters that one product reads: a weight, a bias, or those of several layers together.
struct WeightCopy {
  // A row has `inner` elements of the parameter, and the next row of the copy begins after
  // `stride`.
  int64_t inner = 1;
  int64_t stride = 1;
  int64_t bytes = 0;  // 0 if products read the parameter itself
  Type type = Type::kF32;
  void* data = nullptr;
};

class PackedWeights {
 public:
  // Makes copies for all products of both steps. `parameters` are flat, as the layout says.
  static absl::StatusOr<PackedWeights> Create(const StepGraph& training,
                                              const StepGraph& evaluation,
                                              const ReductionLayout& layout, float* parameters,
                                              Type type, Backing backing);

  const WeightCopy& copy(const std::vector<ValueId>& parameters) const {
    return copies_.at(parameters);
  }
  // Returns true if products read a copy of these parameters, or the parameters as one.
  bool Has(const std::vector<ValueId>& parameters) const { return copies_.contains(parameters); }
  // Writes all copies again.
  void Refresh(cudaStream_t stream) const;
  // Writes those copies that the update does not write, which are the second ones of a parameter
  // that has two.
  void RefreshSecond(cudaStream_t stream) const;

  // Returns true if RefreshSecond has something to write.
  bool has_second_copies() const { return second_ < place_count_; }
  // Returns the bytes of the copies themselves.
  int64_t copied_bytes() const { return memory_.bytes(); }
  int64_t bytes() const { return memory_.bytes() + places_.bytes() + first_chunks_.bytes(); }
  // Return the copies, for kernels. place_of_offset gives the first copy of a parameter by its
  // offset, for the update.
  const PackedWeight* places() const { return places_.as<PackedWeight>(); }
  const std::map<int64_t, int32_t>& place_of_offset() const { return place_of_offset_; }

 private:
  void AddCopies(const StepGraph& step, Type type);
  absl::Status Lay(const ReductionLayout& layout, float* parameters, Backing backing);
  void Refresh(int64_t first, cudaStream_t stream) const;

  const float* parameters_ = nullptr;
  std::map<std::vector<ValueId>, WeightCopy> copies_;
  DeviceBuffer memory_;
  // The places that the update writes come first, then the second ones of parameters.
  DeviceBuffer places_;
  DeviceBuffer first_chunks_;  // prefix sums of chunks; one more than places
  std::vector<int32_t> chunks_;
  int64_t second_ = 0;  // the number of places before the second ones
  int64_t place_count_ = 0;
  std::map<int64_t, int32_t> place_of_offset_;
};

// Returns the weights among the inputs of a convolution, from input `first` on. The biases follow
// them.
std::vector<ValueId> ConvWeightsOf(const Node& node, size_t first = 1);
std::vector<ValueId> ConvBiasesOf(const Node& node);

}  // namespace trainyard::engine::cuda
