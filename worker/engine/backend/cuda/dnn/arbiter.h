// Declares the port through which problems are computed without cuDNN, to judge its engines.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// An arbiter. It is stateless, and never a candidate itself: it is too slow for that. The backend
// brings its own kernels (arbiter/own_kernels.h), so that programs that only plan need none.
class Arbiter {
 public:
  virtual ~Arbiter() = default;
  virtual int64_t WorkspaceBytes(const ConvProblem& problem) const = 0;
  virtual int64_t WorkspaceBytes(const AttentionProblem& problem) const = 0;
  // Enqueue what writes the problem's outputs. The gradient of attention also writes y and logsum,
  // which no noise can stand for, since they belong to x.
  virtual absl::Status Run(const ConvProblem& problem, const ConvMemory& memory, void* workspace,
                           cudaStream_t stream) const = 0;
  virtual absl::Status Run(const AttentionProblem& problem, const AttentionMemory& memory,
                           void* workspace, cudaStream_t stream) const = 0;
};

}  // namespace trainyard::engine::cuda::dnn
