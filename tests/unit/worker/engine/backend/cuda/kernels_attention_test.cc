// Compares attention on the device with double loops, as the reference backend writes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/worker/engine/backend/cuda/matrices.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {
namespace {

using testing::DeviceMatrix;
using testing::ExpectNear;
using testing::Floats;
using testing::kPadding;
using testing::kTypes;
using testing::NameOf;
using testing::RandomFloats;
using testing::Rounded;
using testing::ToleranceOf;

// All three kinds of blocks; a single position; full and short tiles; widths that do not fill a
// warp.
const AttentionShape kShapes[] = {{2, 70, 2, 64},  {1, 1, 3, 5},    {2, 33, 1, 100},
                                  {1, 40, 2, 256}, {1, 64, 1, 128}, {1, 47, 2, 129}};

struct Expected {
  std::vector<double> y, logsum, dx;
};

Expected Compute(const AttentionShape& shape, const Floats& x, const Floats& dy) {
  const int64_t columns = shape.heads * shape.width;
  const double scale = 1 / std::sqrt(static_cast<double>(shape.width));
  Expected expected;
  expected.y.resize(dy.size());
  expected.dx.resize(x.size());
  for (int64_t index = 0; index < shape.rows * shape.heads; ++index) {
    const int64_t first = index / shape.heads * shape.positions;
    const auto place = [&](int64_t part, int64_t t) {
      return static_cast<size_t>((first + t) * 3 * columns + part * columns +
                                 index % shape.heads * shape.width);
    };
    const auto dot = [&](const Floats& a, size_t at, int64_t part, int64_t s) {
      double sum = 0;
      for (int64_t d = 0; d < shape.width; ++d) {
        sum += static_cast<double>(a[at + static_cast<size_t>(d)]) *
               static_cast<double>(x[place(part, s) + static_cast<size_t>(d)]);
      }
      return sum;
    };
    for (int64_t t = 0; t < shape.positions; ++t) {
      const auto out =
          static_cast<size_t>((first + t) * columns + index % shape.heads * shape.width);
      std::vector<double> p, dp;
      double sum = 0;
      for (int64_t s = 0; s <= t; ++s) {
        p.push_back(dot(x, place(0, t), 1, s) * scale);
        dp.push_back(dot(dy, out, 2, s));
      }
      const double largest = *std::max_element(p.begin(), p.end());
      for (const double score : p) sum += std::exp(score - largest);
      const double logsum = largest + std::log(sum);
      expected.logsum.push_back(logsum);
      double product = 0;
      for (size_t s = 0; s < p.size(); ++s) {
        p[s] = std::exp(p[s] - logsum);
        product += p[s] * dp[s];
      }
      for (int64_t s = 0; s <= t; ++s) {
        const double probability = p[static_cast<size_t>(s)];
        const double dscore = probability * (dp[static_cast<size_t>(s)] - product) * scale;
        for (size_t d = 0; d < static_cast<size_t>(shape.width); ++d) {
          expected.y[out + d] += probability * static_cast<double>(x[place(2, s) + d]);
          expected.dx[place(0, t) + d] += dscore * static_cast<double>(x[place(1, s) + d]);
          expected.dx[place(1, s) + d] += dscore * static_cast<double>(x[place(0, t) + d]);
          expected.dx[place(2, s) + d] += probability * static_cast<double>(dy[out + d]);
        }
      }
    }
  }
  return expected;
}

TEST(Attention, IsThatOfDoubleLoopsWithItsGradient) {
  for (const Type type : kTypes) {
    for (const AttentionShape& shape : kShapes) {
      SCOPED_TRACE(std::string(NameOf(type)) + ", width " + std::to_string(shape.width));
      const int64_t pixels = shape.rows * shape.positions;
      const int64_t columns = shape.heads * shape.width;
      // The values are large enough for some probabilities to be near one.
      Floats values = RandomFloats(1, pixels * 3 * columns);
      for (float& value : values) value *= 2;
      const Floats x = Rounded(values, type);
      const Floats dy = Rounded(RandomFloats(2, pixels * columns), type);
      const Expected expected = Compute(shape, x, dy);
      const DeviceMatrix of_x(type, pixels, 3 * columns, 3 * columns + 5, x);
      const DeviceMatrix of_dy(type, pixels, columns, columns + 1, dy);
      const DeviceMatrix y(type, pixels, columns, columns + 3);
      const DeviceMatrix dx(type, pixels, 3 * columns, 3 * columns + 2);
      const DeviceArray<float> logsum(expected.logsum.size());
      const DeviceArray<uint8_t> workspace(static_cast<size_t>(AttentionGradientWorkspace(shape)));
      AttentionForward(shape, of_x.view(), y.view(), logsum.data(), nullptr);
      AttentionGradient(shape, of_dy.view(), of_x.view(), logsum.data(), dx.view(),
                        workspace.data(), nullptr);
      ExpectNear(y.Read(), expected.y, ToleranceOf(type), "y");
      ExpectNear(logsum.Read(), expected.logsum, 3e-6, "logsum");
      ExpectNear(dx.Read(), expected.dx, ToleranceOf(type) + 3e-6, "dx");
      EXPECT_EQ(y.Padding(), Floats(y.Padding().size(), kPadding));
      EXPECT_EQ(dx.Padding(), Floats(dx.Padding().size(), kPadding));
    }
  }
}

TEST(Attention, SeesNothingBeyondAPosition) {
  const AttentionShape shape = {1, 50, 1, 16};
  Floats x = RandomFloats(3, int64_t{50} * 48);
  const auto run = [&] {
    const DeviceMatrix of_x(Type::kF32, 50, 48, 48, x);
    const DeviceMatrix y(Type::kF32, 50, 16, 16);
    const DeviceArray<float> logsum(50);
    AttentionForward(shape, of_x.view(), y.view(), logsum.data(), nullptr);
    Floats all = y.Read();
    all.resize(size_t{20} * 16);
    return all;
  };
  const Floats before = run();
  std::fill(x.begin() + int64_t{20} * 48, x.end(), 1000.0F);
  EXPECT_EQ(run(), before);
}

}  // namespace
}  // namespace trainyard::engine::cuda
