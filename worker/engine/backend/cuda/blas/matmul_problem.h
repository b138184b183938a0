// Defines the problem that a matrix product solves: sizes, types, what is done besides multiplying,
// and the memory for it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda::blas {

// A function of each element of a product. GELU is its approximation by tanh (graph/ops/
// elementwise.cc), since that is the form that cuBLASLt computes.
enum class Activation { kNone, kRelu, kGelu, kGeluGradient };

// The input whose sums over k are taken besides: those of op(a) are [m], and those of op(b) [n]. In
// memory, it has k rows.
enum class Summed { kNone, kA, kB };

// d [m, n] = op(a) [m, k] op(b) [k, n], summed in f32; then d itself is added if `adds`, or an
// addend [m, n]; then the bias. The activation follows: relu, or GELU, which also writes its input
// into `aux` [m, n] if that has a stride, or the product with the slope of GELU at `aux`. f32
// inputs have f32 outputs; 16-bit inputs have outputs of f32 or of their own type. Everything but
// the inputs has the output's type.
//
// cuBLASLt rectifies a NaN to 0.
struct MatmulProblem {
  int64_t m = 1, n = 1, k = 1;
  bool a_transposed = false;                         // in memory, a is [k, m]
  bool b_transposed = false;                         // in memory, b is [n, k]
  Type input = Type::kBf16;                          // of a and b
  Type output = Type::kBf16;                         // of d
  int64_t a_stride = 1, b_stride = 1, d_stride = 1;  // elements from row to row in memory
  bool tf32 = false;                                 // f32 products may be taken in tf32
  bool adds = false;
  int64_t addend_stride = 0;  // 0: there is no addend
  bool bias = false;          // [n]
  Activation activation = Activation::kNone;
  int64_t aux_stride = 0;  // 0: there is no aux
  // The sums need an output in f32, and are added to earlier ones if `adds`.
  Summed summed = Summed::kNone;

  std::string Key() const;
};

// The rows and columns of a and b in memory.
struct Extents {
  int64_t a_rows, a_columns, b_rows, b_columns;
};
Extents ExtentsOf(const MatmulProblem& problem);

// The device memory on which a product runs. What the problem does not have is null.
struct MatmulMemory {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* addend = nullptr;  // may be d, if both have the same stride
  const void* bias = nullptr;
  void* aux = nullptr;
  void* d = nullptr;
  float* sums = nullptr;
  uint32_t* tickets = nullptr;  // for sums; kNormTickets bytes, zero between launches
  void* workspace = nullptr;
};

// The work of kernels of our own after a product.
struct OwnEpilogue {
  int64_t kernels = 0;
  int64_t bytes = 0;  // that they read and write
};

// Returns INVALID_ARGUMENT, naming the problem, for impossible sizes, strides and types.
absl::Status Validate(const MatmulProblem& problem);

}  // namespace trainyard::engine::cuda::blas
