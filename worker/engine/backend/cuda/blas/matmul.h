// Plans and runs matrix products with cuBLASLt, with epilogues. All matrices are row-major here;
// cuBLASLt sees them transposed.
//
// A product is split over k only where its parts are kept in f32 and added in a fixed order, so the
// same algorithm gives the same bits each time. With `autotunes`, the choice of the algorithm
// depends on measurements; without it, equal machines choose alike.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/blas/matmul_problem.h"
#include "worker/engine/backend/cuda/tuning/effort.h"
#include "worker/engine/backend/cuda/tuning/plan_record.h"

namespace trainyard::engine::cuda::blas {

class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual int64_t workspace_bytes() const = 0;
  virtual OwnEpilogue own_epilogue() const = 0;
  // Enqueues the product; may be captured. Only one thread at a time may call it. Pointers must be
  // aligned to 16 bytes, and the workspace to 256; otherwise, or if one is missing or not wanted,
  // INVALID_ARGUMENT is returned. If cuBLASLt refuses, INTERNAL is returned with its message. d and
  // the aux must not overlap a or b.
  virtual absl::Status Run(const MatmulMemory& memory, cudaStream_t stream) const = 0;
};

struct MatmulOptions {
  int64_t workspace_bytes_max = int64_t{32} << 20;
  // Measures the heuristic's first candidates on the device, in memory that is allocated for it. If
  // there is no memory for that, the first candidate is taken.
  bool autotunes = true;
  int candidates_max = 6;
  // Records are made of products that are measured.
  PlanScrutiny scrutiny = {};
};

// Plans products. The class is not thread-safe. Products must not outlive it.
class MatmulPlanner {
 public:
  virtual ~MatmulPlanner() = default;
  // Makes a planner for the current device. Returns UNAVAILABLE if there is no GPU.
  static absl::StatusOr<std::unique_ptr<MatmulPlanner>> Create(const MatmulOptions& options);
  // Returns the product for a problem. The same problem gets the same product each time, except
  // that the first kMeasure may find a faster one than kInherit did. What cuBLASLt does not support
  // besides the product, or was measured to do slower, is done by kernels of our own after it.
  // Returns INVALID_ARGUMENT, naming the problem, for impossible sizes, strides and types, and
  // UNIMPLEMENTED if cuBLASLt has no algorithm.
  virtual absl::StatusOr<const Matmul*> Find(const MatmulProblem& problem, Effort effort) = 0;
  // Returns the places of the measured choices among the candidates, by problem.
  virtual std::map<std::string, int> MeasuredChoices() const = 0;
  // Takes over what another planner has measured, with the same library on a device of the same
  // type, instead of measuring.
  virtual void TakeChoices(const std::map<std::string, int>& choices) = 0;
};

}  // namespace trainyard::engine::cuda::blas
