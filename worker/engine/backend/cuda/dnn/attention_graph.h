// Builds causal attention as graphs of cuDNN.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/graph.h"
#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// The ids of the tensors. Queries, keys and values lie in one tensor (AttentionProblem), to which
// an execution binds memory as kQuery, and so do their gradients, as kQueryGradient.
enum AttentionSlot : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kLogsum,
  kOutputGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient
};

// Builds the operations of flash attention (Dao et al. 2022), which cuDNN recognises as one engine.
// With `deterministic` the gradient of the queries is summed in one order, which takes a workspace
// of positions x positions for every head. Returns UNIMPLEMENTED if the problem is not is_safe(),
// or cuDNN refuses the graph.
absl::StatusOr<Graph> BuildAttentionGraph(const AttentionProblem& problem, bool deterministic,
                                          cudnnHandle_t handle);

}  // namespace trainyard::engine::cuda::dnn
