// Numbers the tensors of a convolution's graph, so that those who build it, run it and compare its
// results mean the same ones.
#pragma once

#include <cstdint>

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

}  // namespace trainyard::engine::cuda::dnn
