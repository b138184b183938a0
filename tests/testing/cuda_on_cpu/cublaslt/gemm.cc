// The loops of a product, in the order and with the roundings that a GPU would use.
#include "tests/testing/cuda_on_cpu/cublaslt/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace trainyard::cuda_on_cpu::cublaslt {
namespace {

float Load(const void* data, uint32_t type, int64_t at) {
  switch (type) {
    case CUDA_R_16F:
      return __half2float(static_cast<const __half*>(data)[at]);
    case CUDA_R_16BF:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    default:
      return static_cast<const float*>(data)[at];
  }
}

void Store(void* data, uint32_t type, int64_t at, float value) {
  switch (type) {
    case CUDA_R_16F:
      static_cast<__half*>(data)[at] = __float2half_rn(value);
      return;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
      return;
    default:
      static_cast<float*>(data)[at] = value;
  }
}

float Rounded(float value, uint32_t type) {
  switch (type) {
    case CUDA_R_16F:
      return __half2float(__float2half_rn(value));
    case CUDA_R_16BF:
      return __bfloat162float(__float2bfloat16_rn(value));
    default:
      return value;
  }
}

// Rounds to the 10 bits of tf32's mantissa, to nearest.
float RoundedToTf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000U) == 0x7f800000U) return value;
  return std::bit_cast<float>((bits + 0xfffU + ((bits >> 13) & 1U)) & ~0x1fffU);
}

// Makes an f32 copy of op(matrix) [rows, columns], with element (r, c) at [r * row_step + c *
// column_step], where one of the steps is 1. Reads along the memory of the matrix.
std::vector<float> Unpack(const Matrix& matrix, int64_t rows, int64_t columns, int64_t row_step,
                          int64_t column_step, bool rounds_to_tf32) {
  std::vector<float> copy(static_cast<size_t>(rows * columns));
  const int64_t lines = matrix.transposed ? rows : columns;
  const int64_t length = matrix.transposed ? columns : rows;
  const int64_t line_step = matrix.transposed ? row_step : column_step;
  const int64_t step = matrix.transposed ? column_step : row_step;
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < length; ++i) {
      const float value = Load(matrix.data, matrix.type, line * matrix.leading + i);
      copy[static_cast<size_t>(line * line_step + i * step)] =
          rounds_to_tf32 ? RoundedToTf32(value) : value;
    }
  }
  return copy;
}

// Computes sums[r] += sum over k of a[k * rows + r] * b[k], four k at a time.
void AddColumn(const float* a, const float* b, int64_t rows, int64_t depth, float* sums) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const float* __restrict a0 = a + k * rows;
    const float* __restrict a1 = a0 + rows;
    const float* __restrict a2 = a1 + rows;
    const float* __restrict a3 = a2 + rows;
    const float b0 = b[k], b1 = b[k + 1], b2 = b[k + 2], b3 = b[k + 3];
    float* __restrict out = sums;
    for (int64_t r = 0; r < rows; ++r) {
      out[r] += (a0[r] * b0 + a1[r] * b1) + (a2[r] * b2 + a3[r] * b3);
    }
  }
  for (; k < depth; ++k) {
    const float* __restrict line = a + k * rows;
    float* __restrict out = sums;
    for (int64_t r = 0; r < rows; ++r) out[r] += line[r] * b[k];
  }
}

// Computes one column of the result in f32, without the epilogue.
void SumColumn(const Gemm& gemm, const float* a, const float* b, std::vector<float>& part,
               std::vector<float>& sums) {
  std::fill(sums.begin(), sums.end(), 0.0F);
  for (int64_t i = 0; i < gemm.parts; ++i) {
    const int64_t begin = gemm.depth * i / gemm.parts;
    const int64_t end = gemm.depth * (i + 1) / gemm.parts;
    std::fill(part.begin(), part.end(), 0.0F);
    AddColumn(a + begin * gemm.rows, b + begin, gemm.rows, end - begin, part.data());
    for (size_t r = 0; r < sums.size(); ++r) {
      sums[r] += gemm.rounds_parts ? Rounded(part[r], gemm.d_type) : part[r];
      if (gemm.rounds_parts) sums[r] = Rounded(sums[r], gemm.d_type);
    }
  }
}

constexpr float kGeluScale = 0.79788456F;  // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

float TanhOfGelu(float x) {
  return std::tanh(kGeluScale * (x + kGeluCube * x * x * x));
}
float Gelu(float x) {
  return 0.5F * x * (1 + TanhOfGelu(x));
}
float GeluSlope(float x) {
  const float t = TanhOfGelu(x);
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * kGeluScale * (1 + 3 * kGeluCube * x * x);
}

// Returns what the epilogue makes of one element of the product.
float Finish(const Gemm& gemm, int64_t row, int64_t column, float value) {
  if (gemm.bias != nullptr) value += Load(gemm.bias, gemm.bias_type, row);
  const int64_t in_aux = column * gemm.aux_leading + row;
  if (gemm.gelu) {
    if (gemm.aux != nullptr) Store(gemm.aux, gemm.d_type, in_aux, value);
    return Gelu(value);
  }
  if (gemm.gelu_gradient) return value * GeluSlope(Load(gemm.aux, gemm.d_type, in_aux));
  // Like cuBLASLt, this turns a NaN into 0.
  return !gemm.relu || value > 0 ? value : 0;
}

// Writes sums over the depth of `count` lines, whose elements are `step` apart.
void SumLines(const std::vector<float>& matrix, int64_t count, int64_t depth, int64_t line_step,
              int64_t step, void* sums, uint32_t type) {
  for (int64_t line = 0; line < count; ++line) {
    float sum = 0;
    for (int64_t k = 0; k < depth; ++k)
      sum += matrix[static_cast<size_t>(line * line_step + k * step)];
    Store(sums, type, line, sum);
  }
}

}  // namespace

void Run(const Gemm& gemm) {
  // `a` is unpacked by rows of k, so that the inner loop runs along them, and `b` by columns.
  const std::vector<float> a =
      Unpack(gemm.a, gemm.rows, gemm.depth, 1, gemm.rows, gemm.rounds_to_tf32);
  const std::vector<float> b =
      Unpack(gemm.b, gemm.depth, gemm.columns, 1, gemm.depth, gemm.rounds_to_tf32);
  if (gemm.a_sums != nullptr) {
    SumLines(a, gemm.rows, gemm.depth, 1, gemm.rows, gemm.a_sums, gemm.d_type);
  }
  if (gemm.b_sums != nullptr) {
    SumLines(b, gemm.columns, gemm.depth, gemm.depth, 1, gemm.b_sums, gemm.d_type);
  }
  std::vector<float> part(static_cast<size_t>(gemm.rows));
  std::vector<float> sums(static_cast<size_t>(gemm.rows));
  for (int64_t column = 0; column < gemm.columns; ++column) {
    SumColumn(gemm, a.data(), b.data() + column * gemm.depth, part, sums);
    for (int64_t row = 0; row < gemm.rows; ++row) {
      float value = gemm.alpha * sums[static_cast<size_t>(row)];
      if (gemm.beta != 0) {
        value += gemm.beta * Load(gemm.c.data, gemm.c.type, column * gemm.c.leading + row);
      }
      value = Finish(gemm, row, column, value);
      Store(gemm.d, gemm.d_type, column * gemm.d_leading + row, value);
    }
  }
}

}  // namespace trainyard::cuda_on_cpu::cublaslt
