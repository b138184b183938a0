// Pairs the members of a problem's memory with the ids of the tensors.
#include "worker/engine/backend/cuda/dnn/bindings.h"

#include <algorithm>

#include "worker/engine/backend/cuda/dnn/attention_graph.h"
#include "worker/engine/backend/cuda/dnn/conv_graph.h"

namespace trainyard::engine::cuda::dnn {

void* BoundTo(int64_t id, const Bindings& bindings) {
  const auto bound = std::find_if(bindings.begin(), bindings.end(),
                                  [&](const auto& binding) { return binding.first == id; });
  return bound == bindings.end() ? nullptr : bound->second;
}

Bindings BindingsOf(const ConvMemory& memory) {
  return {{kX, memory.x},     {kWeight, memory.weight},
          {kY, memory.y},     {kBias, const_cast<float*>(memory.bias)},
          {kSum, memory.sum}, {kSquareSum, memory.square_sum}};
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
          .square_sum = static_cast<float*>(BoundTo(kSquareSum, bindings))};
}

AttentionMemory MemoryOf(const AttentionProblem& /*problem*/, const Bindings& bindings) {
  return {.x = BoundTo(kQuery, bindings),
          .y = BoundTo(kOutput, bindings),
          .logsum = static_cast<float*>(BoundTo(kLogsum, bindings)),
          .dy = BoundTo(kOutputGradient, bindings),
          .dx = BoundTo(kQueryGradient, bindings)};
}

}  // namespace trainyard::engine::cuda::dnn
