// Builds convolutions as graphs of cuDNN.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/graph.h"
#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// The ids of what an execution binds, which are the members of ConvMemory.
enum ConvSlot : int64_t {
  kX = 1,
  kWeight,
  kY,
  kBias,
  kSum,
  kSquareSum,
  kScale,
  kShift,
  // The members of NormMemory follow.
  kNormInput,
  kNormMean,
  kNormInverse,
  kNormWeight,
  kNormBias,
  kNormWeightGradient,
  kNormBiasGradient,
  kNormFactors,  // and the two ids after it
};

// Builds the graph. Products and sums are in f32. Returns INVALID_ARGUMENT for a problem that makes
// no sense (an output that does not follow from the input), and UNIMPLEMENTED if cuDNN refuses the
// graph as such.
absl::StatusOr<Graph> BuildConvGraph(const ConvProblem& problem, cudnnHandle_t handle);

}  // namespace trainyard::engine::cuda::dnn
