// Pairs the members of a problem's memory with the ids of the tensors.
#include "worker/engine/backend/cuda/dnn/bindings.h"

#include <algorithm>

#include "worker/engine/backend/cuda/dnn/attention_graph.h"
#include "worker/engine/backend/cuda/dnn/conv_slots.h"

namespace trainyard::engine::cuda::dnn {

void* BoundTo(int64_t id, const Bindings& bindings) {
  const auto bound = std::find_if(bindings.begin(), bindings.end(),
                                  [&](const auto& binding) { return binding.first == id; });
  return bound == bindings.end() ? nullptr : bound->second;
}

Bindings BindingsOf(const ConvMemory& memory) {
  const NormMemory& norm = memory.norm;
  return {{kX, memory.x},
          {kWeight, memory.weight},
          {kY, memory.y},
          {kBias, const_cast<float*>(memory.bias)},
          {kSum, memory.sum},
          {kSquareSum, memory.square_sum},
          {kScale, const_cast<void*>(memory.scale)},
          {kShift, const_cast<void*>(memory.shift)},
          {kNormInput, norm.input},
          {kNormMean, const_cast<float*>(norm.mean)},
          {kNormInverse, const_cast<float*>(norm.inverse)},
          {kNormWeight, const_cast<float*>(norm.weight)},
          {kNormBias, const_cast<float*>(norm.bias)},
          {kNormWeightGradient, norm.dweight},
          {kNormBiasGradient, norm.dbias},
          {kNormFactors, norm.factors}};
}

Bindings BindingsOf(const AttentionMemory& memory) {
  return {{kQuery, memory.x},
          {kOutput, memory.y},
          {kLogsum, memory.logsum},
          {kOutputGradient, memory.dy},
          {kQueryGradient, memory.dx}};
}

ConvMemory MemoryOf(const ConvProblem& /*problem*/, const Bindings& bindings) {
  return {.x = BoundTo(kX, bindings),
          .weight = BoundTo(kWeight, bindings),
          .y = BoundTo(kY, bindings),
          .bias = static_cast<const float*>(BoundTo(kBias, bindings)),
          .sum = static_cast<float*>(BoundTo(kSum, bindings)),
          .square_sum = static_cast<float*>(BoundTo(kSquareSum, bindings)),
          .scale = BoundTo(kScale, bindings),
          .shift = BoundTo(kShift, bindings),
          .norm = {.input = BoundTo(kNormInput, bindings),
                   .mean = static_cast<const float*>(BoundTo(kNormMean, bindings)),
                   .inverse = static_cast<const float*>(BoundTo(kNormInverse, bindings)),
                   .weight = static_cast<const float*>(BoundTo(kNormWeight, bindings)),
                   .bias = static_cast<const float*>(BoundTo(kNormBias, bindings)),
                   .dweight = static_cast<float*>(BoundTo(kNormWeightGradient, bindings)),
                   .dbias = static_cast<float*>(BoundTo(kNormBiasGradient, bindings)),
                   .factors = static_cast<float*>(BoundTo(kNormFactors, bindings))}};
}

AttentionMemory MemoryOf(const AttentionProblem& /*problem*/, const Bindings& bindings) {
  return {.x = BoundTo(kQuery, bindings),
          .y = BoundTo(kOutput, bindings),
          .logsum = static_cast<float*>(BoundTo(kLogsum, bindings)),
          .dy = BoundTo(kOutputGradient, bindings),
          .dx = BoundTo(kQueryGradient, bindings)};
}

}  // namespace trainyard::engine::cuda::dnn
