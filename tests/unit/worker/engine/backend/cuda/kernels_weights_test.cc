// Tests that packed copies hold each parameter where products look for it, and nothing else.
#include "worker/engine/backend/cuda/kernels/weights.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/worker/engine/backend/cuda/matrices.h"

namespace trainyard::engine::cuda {
namespace {

using testing::DeviceMatrix;
using testing::Floats;
using testing::kPadding;
using testing::kTypes;
using testing::NameOf;
using testing::RandomFloats;
using testing::Rounded;

struct Case {
  int64_t offset, rows, inner, stride;
};
// Whole vectors; rows that end inside one; rows that cross a chunk; a row longer than a chunk; a
// single row.
constexpr Case kCases[] = {{0, 700, 16, 24},       {11200, 500, 3, 8}, {12704, 3, 5000, 5008},
                           {27712, 1, 9001, 9008}, {36720, 1, 64, 64}, {36785, 9, 8, 16}};
constexpr int64_t kParameters = 36900;

// The contents that a packed copy should have after `values` are packed into it.
Floats Expected(const Case& c, const Floats& values, Type type) {
  const Floats rounded = Rounded(values, type);
  Floats expected;
  for (int64_t i = 0; i < c.rows * c.inner; ++i) {
    expected.push_back(rounded[static_cast<size_t>(c.offset + i)]);
  }
  return expected;
}

TEST(PackWeights, WritesEveryCopyAndNoPadding) {
  const Floats values = RandomFloats(1, kParameters);
  const DeviceArray<float> parameters(values);
  for (const Type type : kTypes) {
    std::vector<std::unique_ptr<DeviceMatrix>> copies;
    std::vector<PackedWeight> weights;
    // Numbers of chunks may begin anywhere.
    std::vector<int32_t> first_chunk = {5};
    for (const Case& c : kCases) {
      copies.push_back(std::make_unique<DeviceMatrix>(type, c.rows, c.inner, c.stride));
      const int64_t count = c.rows * c.inner;
      weights.push_back({c.offset, count, c.inner, c.stride, copies.back()->view().data, type});
      first_chunk.push_back(first_chunk.back() +
                            static_cast<int32_t>((count + kPackChunk - 1) / kPackChunk));
    }
    const DeviceArray<PackedWeight> on_device(weights);
    const DeviceArray<int32_t> chunks(first_chunk);
    PackWeights(parameters.data(), on_device.data(), chunks.data(),
                static_cast<int64_t>(weights.size()), first_chunk.back() - first_chunk.front(),
                nullptr);
    for (size_t i = 0; i < copies.size(); ++i) {
      EXPECT_EQ(copies[i]->Read(), Expected(kCases[i], values, type)) << NameOf(type) << " " << i;
      for (const float value : copies[i]->Padding()) {
        ASSERT_EQ(value, kPadding) << NameOf(type) << " " << i;
      }
    }
  }
}

TEST(UnpackGradient, TakesRowsWithoutTheirPadding) {
  for (const Type type : kTypes) {
    for (const Case& c : kCases) {
      const int64_t count = c.rows * c.inner;
      const Floats values = Rounded(RandomFloats(2, count), type);
      const DeviceMatrix packed(type, c.rows, c.inner, c.stride, values);
      const DeviceArray<float> gradient(RandomFloats(3, count));
      const auto unpack = [&](bool adds) {
        UnpackGradient({packed.view().data, type, c.inner, c.stride, count, adds, gradient.data()},
                       nullptr);
        return gradient.Read();
      };
      EXPECT_EQ(unpack(false), values) << NameOf(type);
      Floats twice = values;
      for (float& value : twice) {
        value *= 2;
      }
      EXPECT_EQ(unpack(true), twice) << NameOf(type);
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda
