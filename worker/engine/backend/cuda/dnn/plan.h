// A plan of cuDNN's for one problem, as those who run it see it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// What plans are told by, for tables and tests.
struct PlanFacts {
  std::string engine;  // cuDNN's name or number of engine and settings
  int64_t workspace_bytes = 0;
  int candidates = 0;       // that could be built
  double microseconds = 0;  // of the fastest; 0: not measured
  bool from_cache = false;
};

// Immutable; may be executed by one thread at a time for each handle, which the planner owns.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual const PlanFacts& facts() const = 0;
  // Enqueues it on the stream; may be captured. `workspace`: facts().workspace_bytes, 256-byte
  // aligned. FAILED_PRECONDITION of a plan that was made without a device; INVALID_ARGUMENT for
  // memory that is missing, or not aligned to kVectorBytes.
  virtual absl::Status Run(const ConvMemory& memory, void* workspace,
                           cudaStream_t stream) const = 0;
  virtual absl::Status Run(const AttentionMemory& memory, void* workspace,
                           cudaStream_t stream) const = 0;
};

}  // namespace trainyard::engine::cuda::dnn
