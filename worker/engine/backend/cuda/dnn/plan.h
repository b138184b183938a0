// Defines a plan of cuDNN for one problem, as its users see it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// Facts that identify a plan, for tables and tests.
struct PlanFacts {
  std::string engine;  // cuDNN's name or number of the engine, and its settings
  int64_t workspace_bytes = 0;
  int candidates = 0;  // the number of plans that could be built
  // The time of one run, or 0 if none is known. For an inherited choice it is estimated: the time
  // that was measured for the most rows, in proportion to the rows.
  double microseconds = 0;
  bool from_cache = false;
};

// A plan. It is immutable, and may be executed by one thread at a time for each handle, which the
// planner owns.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual const PlanFacts& facts() const = 0;
  // Enqueues the plan on the stream; may be captured. The workspace has facts().workspace_bytes and
  // is aligned to 256 bytes. Returns FAILED_PRECONDITION for a plan that was made without a device,
  // and INVALID_ARGUMENT for memory that is missing, or not aligned to kVectorBytes.
  virtual absl::Status Run(const ConvMemory& memory, void* workspace,
                           cudaStream_t stream) const = 0;
  virtual absl::Status Run(const AttentionMemory& memory, void* workspace,
                           cudaStream_t stream) const = 0;
};

}  // namespace trainyard::engine::cuda::dnn
