// Turns nodes of a step graph into the problems that cuDNN is asked for.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/dnn/problem.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cuda::dnn {

// Returns the channels of an image in memory, which are padded to vectors. With several groups they
// stay as they are, since each group has its share of the channels; then only the distance of the
// pixels is padded.
int64_t ChannelsInMemory(int64_t channels, int64_t groups, Type type);

// Returns the problem of a conv2d, conv2d_input_gradient or conv2d_parameter_gradient on `rows`
// rows. Tensors are not parts of others: x_stride and y_stride are the padded channels. Several
// weights (ConvAttributes) make one problem of all their output channels. Bias and relu are as the
// node has them; the other fusions and `f32_gradient` are left to the caller.
ConvProblem ProblemOf(const StepGraph& step, const Node& node, int64_t rows, Type type, bool tf32);

// Returns the problem of an attention or attention_gradient.
AttentionProblem AttentionProblemOf(const StepGraph& step, const Node& node, int64_t rows,
                                    Type type);

}  // namespace trainyard::engine::cuda::dnn
