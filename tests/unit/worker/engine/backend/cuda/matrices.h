// Matrices of any element type in device memory, for the tests of the CUDA kernels.
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
// The relative error of one rounding to the type, with room for sums in f32.
double ToleranceOf(Type type);

// Random numbers U(-1, 1), the same for the same seed.
Floats RandomFloats(uint64_t seed, int64_t count);
// Random numbers in [0, end).
std::vector<int32_t> RandomNumbers(uint64_t seed, int64_t count, int32_t end);
// Writes the value in the type, of which it has SizeOf bytes.
void Encode(Type type, float value, void* to);
// Each value as it is after rounding to the type.
Floats Rounded(const Floats& values, Type type);

// A matrix [pixels, channels] in device memory, with rows of `stride` elements. The gaps hold
// kPadding at first.
inline constexpr float kPadding = 7;
class DeviceMatrix {
 public:
  DeviceMatrix(Type type, int64_t pixels, int64_t channels, int64_t stride);
  DeviceMatrix(Type type, int64_t pixels, int64_t channels, int64_t stride, const Floats& values);

  View view() const { return {data_.data(), stride_, type_}; }
  Floats Read() const;
  // Returns for each row the elements between the channels and the stride.
  Floats Padding() const;

 private:
  Floats All() const;

  Type type_;
  int64_t pixels_, channels_, stride_;
  DeviceArray<uint8_t> data_;
};

// Expects |a - b| <= tolerance * max(1, largest |b|) for every element.
void ExpectNear(const Floats& a, const std::vector<double>& b, double tolerance,
                const std::string& what);

// Draws another order of blocks and threads if the device is emulated.
void ShuffleDevice(uint64_t seed);
// Returns the number of kernels launched so far, which is always 0 if the device is not emulated.
int64_t LaunchesSoFar();

}  // namespace testing
}  // namespace trainyard::engine::cuda
