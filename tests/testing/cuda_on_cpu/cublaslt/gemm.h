// Computes the product itself, on the CPU.
#pragma once

#include <cstdint>

namespace trainyard::cuda_on_cpu::cublaslt {

// A column-major matrix of the given cudaDataType. With `transposed`, its transpose is used.
struct Matrix {
  const void* data = nullptr;
  uint32_t type = 0;
  int64_t leading = 0;
  bool transposed = false;
};

struct Gemm {
  int64_t rows = 0, columns = 0, depth = 0;
  Matrix a, b, c;
  void* d = nullptr;
  uint32_t d_type = 0;
  int64_t d_leading = 0;
  float alpha = 1, beta = 0;
  bool rounds_to_tf32 = false;
  int64_t parts = 1;          // of each sum, added in order
  bool rounds_parts = false;  // to d's type
  const void* bias = nullptr;
  uint32_t bias_type = 0;
  bool relu = false;
  bool gelu = false;           // by tanh; its input goes to the aux, if there is one
  bool gelu_gradient = false;  // its input is the aux
  void* aux = nullptr;         // of d's type
  int64_t aux_leading = 0;
  void* a_sums = nullptr;  // [rows], of d's type: the sums of a over the depth
  void* b_sums = nullptr;  // [columns], likewise
};

// Computes d [rows, columns] = epilogue(alpha a b + beta c), with sums in f32. c is not read if
// beta is 0. The aux and the sums are written or read besides.
void Run(const Gemm& gemm);

}  // namespace trainyard::cuda_on_cpu::cublaslt
