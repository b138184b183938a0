// What the tests of the CUDA kernels share: matrices of any element type, in device memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/device_array.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

using ::trainyard::testing::DeviceArray;

namespace testing {

using Floats = std::vector<float>;

inline constexpr Type kTypes[] = {Type::kF32, Type::kF16, Type::kBf16};

const char* NameOf(Type type);
// Relative error of one rounding to the type, with room for sums in f32.
double ToleranceOf(Type type);

// U(-1, 1), the same for the same seed.
Floats RandomFloats(uint64_t seed, int64_t count);
// In [0, end).
std::vector<int32_t> RandomNumbers(uint64_t seed, int64_t count, int32_t end);
// What the type makes of each.
Floats Rounded(const Floats& values, Type type);

// [pixels, channels] in device memory, rows of `stride` elements. What lies between is kPadding at
// first.
inline constexpr float kPadding = 7;
class DeviceMatrix {
 public:
  DeviceMatrix(Type type, int64_t pixels, int64_t channels, int64_t stride);
  DeviceMatrix(Type type, int64_t pixels, int64_t channels, int64_t stride, const Floats& values);

  View view() const { return {data_.data(), stride_, type_}; }
  Floats Read() const;
  // Of each row, the elements from the channels to the stride.
  Floats Padding() const;

 private:
  Floats All() const;

  Type type_;
  int64_t pixels_, channels_, stride_;
  DeviceArray<uint8_t> data_;
};

// |a - b| <= tolerance * max(1, largest |b|) for every element.
void ExpectNear(const Floats& a, const std::vector<double>& b, double tolerance,
                const std::string& what);

// Draws another order of blocks and threads, where the device is emulated.
void ShuffleDevice(uint64_t seed);
// Launches of kernels so far; 0 always where the device is not emulated.
int64_t LaunchesSoFar();

}  // namespace testing
}  // namespace trainyard::engine::cuda
