// Measures the algorithms of one product against each other. For this folder alone.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/blas/matmul.h"

namespace trainyard::engine::cuda::blas {

// Memory that a product can run on.
struct TuningMemory {
  void* a = nullptr;
  void* b = nullptr;
  float* bias = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
};

// Enqueues candidate `index` on the memory.
using RunCandidate =
    std::function<absl::Status(int index, const TuningMemory& memory, cudaStream_t stream)>;

// The fastest of `count` candidates; a candidate that fails to start is passed over. -1 where
// nothing could be measured: no memory, or all failed. Waits for the device.
int FastestCandidate(const MatmulProblem& problem, int64_t workspace_bytes, int count,
                     const RunCandidate& run);

}  // namespace trainyard::engine::cuda::blas
