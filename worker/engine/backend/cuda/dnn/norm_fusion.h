// Adds to the graph of a convolution what a batch norm does before it, or its gradient after it.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/dnn/graph.h"

namespace trainyard::engine::cuda::dnn {

// Returns the output of an operation that only the next one reads: like `tensor`, in f32.
Tensor Intermediate(const Tensor& tensor);
// Returns an f32 tensor of [1, channels, 1, 1].
Tensor PerChannel(int64_t id, int64_t channels);

// Adds x and relu(x scale + shift), and returns the latter. Scale and shift are of the type of x;
// the result is rounded to it, and what precedes the result is f32.
GraphBuilder::Handle AddNormalised(GraphBuilder& builder, const Tensor& x);

// Adds the rectifier's gradient, which is written as `x` (kX), and the sums over it that make up
// the gradients of the norm's weight and bias. `gradient` is that of the rectifier's output. The
// output's sign is computed again, from the norm's input, which lies like `x`.
void AddNormSums(GraphBuilder& builder, const Tensor& x, GraphBuilder::Handle gradient);

}  // namespace trainyard::engine::cuda::dnn
