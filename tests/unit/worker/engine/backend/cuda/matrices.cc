// Moves matrices to and from the device, and compares them.
#include "tests/unit/worker/engine/backend/cuda/matrices.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace trainyard::cuda_on_cpu {
// These are missing if the real runtime is linked.
__attribute__((weak)) void SetSeed(uint64_t seed);
__attribute__((weak)) int64_t KernelsLaunched();
}  // namespace trainyard::cuda_on_cpu

namespace trainyard::engine::cuda::testing {
namespace {

float Decode(Type type, const uint8_t* from) {
  if (type == Type::kF32) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  if (type == Type::kF16) {
    __half half;
    std::memcpy(&half, from, sizeof(half));
    return __half2float(half);
  }
  __nv_bfloat16 half;
  std::memcpy(&half, from, sizeof(half));
  return __bfloat162float(half);
}

}  // namespace

const char* NameOf(Type type) {
  return type == Type::kF32 ? "f32" : type == Type::kF16 ? "f16" : "bf16";
}

double ToleranceOf(Type type) {
  return type == Type::kF32 ? 3e-6 : type == Type::kF16 ? 1e-3 : 8e-3;
}

Floats RandomFloats(uint64_t seed, int64_t count) {
  std::mt19937_64 random(seed);
  Floats values(static_cast<size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  }
  return values;
}

std::vector<int32_t> RandomNumbers(uint64_t seed, int64_t count, int32_t end) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  for (int32_t& number : numbers) {
    number = static_cast<int32_t>(random() % static_cast<uint64_t>(end));
  }
  return numbers;
}

void Encode(Type type, float value, void* to) {
  if (type == Type::kF32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (type == Type::kF16) {
    const __half half = __float2half_rn(value);
    std::memcpy(to, &half, sizeof(half));
  } else {
    const __nv_bfloat16 half = __float2bfloat16_rn(value);
    std::memcpy(to, &half, sizeof(half));
  }
}

Floats Rounded(const Floats& values, Type type) {
  Floats rounded;
  for (const float value : values) {
    uint8_t bytes[sizeof(float)];
    Encode(type, value, bytes);
    rounded.push_back(Decode(type, bytes));
  }
  return rounded;
}

DeviceMatrix::DeviceMatrix(Type type, int64_t pixels, int64_t channels, int64_t stride)
    : DeviceMatrix(type, pixels, channels, stride,
                   Floats(static_cast<size_t>(pixels * channels), kPadding)) {}

DeviceMatrix::DeviceMatrix(Type type, int64_t pixels, int64_t channels, int64_t stride,
                           const Floats& values)
    : type_(type),
      pixels_(pixels),
      channels_(channels),
      stride_(stride),
      data_(static_cast<size_t>(pixels * stride * SizeOf(type))) {
  std::vector<uint8_t> bytes(data_.size());
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = 0; c < stride; ++c) {
      Encode(type, c < channels ? values[static_cast<size_t>(p * channels + c)] : kPadding,
             bytes.data() + (p * stride + c) * SizeOf(type));
    }
  }
  data_.Write(bytes);
}

Floats DeviceMatrix::All() const {
  const std::vector<uint8_t> bytes = data_.Read();
  Floats values;
  for (int64_t i = 0; i < pixels_ * stride_; ++i) {
    values.push_back(Decode(type_, bytes.data() + i * SizeOf(type_)));
  }
  return values;
}

Floats DeviceMatrix::Read() const {
  const Floats all = All();
  Floats values;
  for (int64_t p = 0; p < pixels_; ++p) {
    values.insert(values.end(), all.begin() + p * stride_, all.begin() + p * stride_ + channels_);
  }
  return values;
}

Floats DeviceMatrix::Padding() const {
  const Floats all = All();
  Floats values;
  for (int64_t p = 0; p < pixels_; ++p) {
    values.insert(values.end(), all.begin() + p * stride_ + channels_,
                  all.begin() + (p + 1) * stride_);
  }
  return values;
}

void ExpectNear(const Floats& a, const std::vector<double>& b, double tolerance,
                const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 1;
  for (const double value : b) {
    largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    // This is written so that NaN fails.
    ASSERT_TRUE(std::abs(static_cast<double>(a[i]) - b[i]) <= tolerance * largest)
        << what << ": element " << i << " is " << a[i] << ", expected " << b[i];
  }
}

void ShuffleDevice(uint64_t seed) {
  if (cuda_on_cpu::SetSeed != nullptr) {
    cuda_on_cpu::SetSeed(seed);
  }
}

int64_t LaunchesSoFar() {
  return cuda_on_cpu::KernelsLaunched == nullptr ? 0 : cuda_on_cpu::KernelsLaunched();
}

}  // namespace trainyard::engine::cuda::testing
