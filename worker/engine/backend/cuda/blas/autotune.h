// Measures the algorithms of one product against each other. Only this folder uses it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/blas/matmul_problem.h"
#include "worker/engine/backend/cuda/tuning/plan_record.h"

namespace trainyard::engine::cuda::blas {

// Enqueues candidate `index` on the memory.
using RunCandidate =
    std::function<absl::Status(int index, const MatmulMemory& memory, cudaStream_t stream)>;

// Returns the fastest of record.candidates candidates, ignoring those that fail to start, or -1 if
// nothing could be measured, because there is no memory or all failed. Waits for the device. They
// get record.workspace_bytes. If record.is_verified, candidates that differ from others are
// ignored, too. The rest of the record is filled in. Returns the error of a candidate after which
// the device does nothing more.
absl::StatusOr<int> FastestCandidate(const MatmulProblem& problem, PlanRecord& record,
                                     const RunCandidate& run);

}  // namespace trainyard::engine::cuda::blas
