// Conversions between f32 and the types of tensors.
#include "tests/testing/cuda_on_cpu/cudnn/elements.h"

#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};

float ToFloat(float value) {
  return value;
}
float ToFloat(double value) {
  return static_cast<float>(value);
}
float ToFloat(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
float ToFloat(Half value) {
  return __half2float(__half(__half_raw{value.bits}));
}
float ToFloat(Bool value) {
  return value.bits == 0 ? 0.0f : 1.0f;
}
template <typename Integer>
float ToFloat(Integer value) {
  return static_cast<float>(value);
}

void FromFloat(float value, float* result) {
  *result = value;
}
void FromFloat(float value, double* result) {
  *result = static_cast<double>(value);
}
void FromFloat(float value, Bf16* result) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    result->bits = static_cast<uint16_t>((bits >> 16) | 0x40);
    return;
  }
  const uint32_t odd = (bits >> 16) & 1;
  result->bits = static_cast<uint16_t>((bits + 0x7fff + odd) >> 16);
}
void FromFloat(float value, Half* result) {
  result->bits = static_cast<__half_raw>(__float2half_rn(value)).x;
}
void FromFloat(float value, Bool* result) {
  result->bits = value == 0 ? 0 : 1;
}
template <typename Integer>
void FromFloat(float value, Integer* result) {
  if (std::isnan(value)) {
    *result = 0;
    return;
  }
  // Not every limit is an f32. Doubles hold the limits of 32 bits; longer integers do not occur
  // here.
  const double low = static_cast<double>(std::numeric_limits<Integer>::min());
  const double high = static_cast<double>(std::numeric_limits<Integer>::max());
  const double rounded = std::nearbyint(static_cast<double>(value));
  *result = rounded >= high  ? std::numeric_limits<Integer>::max()
            : rounded <= low ? std::numeric_limits<Integer>::min()
                             : static_cast<Integer>(rounded);
}

// Calls `function` with a null pointer to the element type.
template <typename Function>
void WithType(cudnnDataType_t type, const Function& function) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return function(static_cast<float*>(nullptr));
    case CUDNN_DATA_DOUBLE:
      return function(static_cast<double*>(nullptr));
    case CUDNN_DATA_HALF:
      return function(static_cast<Half*>(nullptr));
    case CUDNN_DATA_BFLOAT16:
      return function(static_cast<Bf16*>(nullptr));
    case CUDNN_DATA_INT8:
      return function(static_cast<int8_t*>(nullptr));
    case CUDNN_DATA_UINT8:
      return function(static_cast<uint8_t*>(nullptr));
    case CUDNN_DATA_INT32:
      return function(static_cast<int32_t*>(nullptr));
    case CUDNN_DATA_INT64:
      return function(static_cast<int64_t*>(nullptr));
    default:
      return function(static_cast<Bool*>(nullptr));
  }
}

}  // namespace

void ReadRow(cudnnDataType_t type, const void* data, int64_t stride, int64_t count, float* values) {
  WithType(type, [&](auto* tag) {
    const auto* elements = static_cast<const std::remove_pointer_t<decltype(tag)>*>(data);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = ToFloat(elements[i * stride]);
    }
  });
}

void WriteRow(cudnnDataType_t type, void* data, int64_t stride, int64_t count,
              const float* values) {
  WithType(type, [&](auto* tag) {
    auto* elements = static_cast<decltype(tag)>(data);
    for (int64_t i = 0; i < count; ++i) {
      FromFloat(values[i], &elements[i * stride]);
    }
  });
}

void RoundRow(cudnnDataType_t type, int64_t count, float* values) {
  if (type == CUDNN_DATA_FLOAT) {
    return;
  }
  WithType(type, [&](auto* tag) {
    for (int64_t i = 0; i < count; ++i) {
      std::remove_pointer_t<decltype(tag)> element;
      FromFloat(values[i], &element);
      values[i] = ToFloat(element);
    }
  });
}

float Nudge(cudnnDataType_t type, float value, bool upwards) {
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  int bits = 0;  // bits of f32 that the type does not have
  switch (type) {
    case CUDNN_DATA_FLOAT:
      break;
    case CUDNN_DATA_HALF:
      bits = 13;
      break;
    case CUDNN_DATA_BFLOAT16:
      bits = 16;
      break;
    default:
      return value;
  }
  RoundRow(type, 1, &value);
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  const auto as_bits = std::bit_cast<uint32_t>(value);
  const uint32_t unit = uint32_t{1} << bits;
  return std::bit_cast<float>(upwards ? as_bits + unit : as_bits - unit);
}

}  // namespace trainyard::cuda_on_cpu::cudnn
