// Builds convolutions as graphs of cuDNN.
#pragma once

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/conv_slots.h"
#include "worker/engine/backend/cuda/dnn/graph.h"
#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// Builds the graph. Products and sums are in f32. Returns INVALID_ARGUMENT for a problem that makes
// no sense (an output that does not follow from the input), and UNIMPLEMENTED if cuDNN refuses the
// graph as such.
absl::StatusOr<Graph> BuildConvGraph(const ConvProblem& problem, cudnnHandle_t handle);

}  // namespace trainyard::engine::cuda::dnn
