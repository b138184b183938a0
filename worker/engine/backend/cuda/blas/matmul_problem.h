// Defines the problem that a matrix product solves: sizes, types, and what is done besides
// multiplying.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda::blas {

// d [m, n] = op(a) [m, k] op(b) [k, n], summed in f32; then d is added if `adds`, then the bias,
// and the result is rectified if `relu`. f32 inputs have f32 outputs; 16-bit inputs have outputs of
// f32 or of their own type.
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
  bool bias = false;  // [n], of the output's type
  bool relu = false;

  std::string Key() const;
};

// The rows and columns of a and b in memory.
struct Extents {
  int64_t a_rows, a_columns, b_rows, b_columns;
};
Extents ExtentsOf(const MatmulProblem& problem);

// Returns INVALID_ARGUMENT, naming the problem, for impossible sizes, strides and types.
absl::Status Validate(const MatmulProblem& problem);

}  // namespace trainyard::engine::cuda::blas
