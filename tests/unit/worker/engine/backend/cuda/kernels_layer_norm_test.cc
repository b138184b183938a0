// Compares layer norm on the device with double loops, as the reference backend writes them.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

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
using testing::ShuffleDevice;
using testing::ToleranceOf;

constexpr float kEps = 1e-5F;

struct Shape {
  int64_t count, channels, stride;
};
// Vectors for a warp and for a block; vectors that a block's registers cannot hold; rows that do
// not fill a vector; several vectors for each warp or block, and more of them than blocks.
constexpr Shape kShapes[] = {{9, 768, 768},   {70, 13, 16},    {3, 1024, 1024}, {40, 800, 800},
                             {5, 1100, 1112}, {9, 9001, 9001}, {300, 20, 20},   {8500, 16, 16}};

struct Expected {
  std::vector<double> y, mean, inverse, dx, dweight, dbias;
};

// `dy` may be empty.
Expected Compute(const Shape& shape, const Floats& x, const Floats& weight, const Floats& bias,
                 const Floats& dy) {
  const auto channels = static_cast<size_t>(shape.channels);
  const double size = static_cast<double>(channels);
  Expected expected;
  expected.dweight.resize(channels);
  expected.dbias.resize(channels);
  for (size_t n = 0; n < static_cast<size_t>(shape.count); ++n) {
    const auto at = [&](const Floats& values, size_t c) {
      return static_cast<double>(values[n * channels + c]);
    };
    double mean = 0;
    double variance = 0;
    for (size_t c = 0; c < channels; ++c) mean += at(x, c) / size;
    for (size_t c = 0; c < channels; ++c) variance += std::pow(at(x, c) - mean, 2) / size;
    const double inverse = 1 / std::sqrt(variance + static_cast<double>(kEps));
    expected.mean.push_back(mean);
    expected.inverse.push_back(inverse);
    double mean_g = 0;
    double mean_gh = 0;
    for (size_t c = 0; c < channels; ++c) {
      const double w = static_cast<double>(weight[c]);
      const double h = (at(x, c) - mean) * inverse;
      expected.y.push_back(h * w + static_cast<double>(bias[c]));
      if (!dy.empty()) {
        mean_g += at(dy, c) * w / size;
        mean_gh += at(dy, c) * w * h / size;
        expected.dweight[c] += at(dy, c) * h;
        expected.dbias[c] += at(dy, c);
      }
    }
    for (size_t c = 0; c < channels && !dy.empty(); ++c) {
      const double h = (at(x, c) - mean) * inverse;
      expected.dx.push_back(inverse *
                            (at(dy, c) * static_cast<double>(weight[c]) - mean_g - h * mean_gh));
    }
  }
  return expected;
}

// Its vectors have means far from zero.
Floats RandomVectors(uint64_t seed, const Shape& shape) {
  Floats values = RandomFloats(seed, shape.count * shape.channels);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] += static_cast<float>(i / static_cast<size_t>(shape.channels) % 5);
  }
  return values;
}

void ExpectPaddingCleared(const DeviceMatrix& matrix, const Shape& shape, Type type) {
  const int64_t padded = PaddedChannels(shape.channels, type);
  const Floats padding = matrix.Padding();
  const int64_t wide = shape.stride - shape.channels;
  if (wide == 0) return;
  for (size_t i = 0; i < padding.size(); ++i) {
    const int64_t channel = shape.channels + static_cast<int64_t>(i) % wide;
    const bool is_cleared = shape.stride >= padded && channel < padded;
    ASSERT_EQ(padding[i], is_cleared ? 0 : kPadding) << "channel " << channel;
  }
}

TEST(LayerNorm, IsThatOfDoubleLoops) {
  for (const Type type : kTypes) {
    for (const Type y_type : {type, Type::kF32}) {
      for (const Shape& shape : kShapes) {
        SCOPED_TRACE(std::string(NameOf(type)) + " to " + NameOf(y_type) + ", channels " +
                     std::to_string(shape.channels));
        const Floats x = Rounded(RandomVectors(1, shape), type);
        const Floats weight = RandomFloats(2, shape.channels);
        const Floats bias = RandomFloats(3, shape.channels);
        const Expected expected = Compute(shape, x, weight, bias, {});
        const DeviceMatrix of_x(type, shape.count, shape.channels, shape.stride, x);
        const DeviceMatrix y(y_type, shape.count, shape.channels, shape.stride);
        const DeviceArray<float> w(weight);
        const DeviceArray<float> b(bias);
        const DeviceArray<float> mean(static_cast<size_t>(shape.count));
        const DeviceArray<float> inverse(static_cast<size_t>(shape.count));
        LayerNormForward(of_x.view(), w.data(), b.data(), kEps, y.view(), mean.data(),
                         inverse.data(), shape.count, shape.channels, nullptr);
        ExpectNear(y.Read(), expected.y, ToleranceOf(y_type), "y");
        ExpectNear(mean.Read(), expected.mean, 2e-6, "mean");
        ExpectNear(inverse.Read(), expected.inverse, 5e-6, "inverse");
        ExpectPaddingCleared(y, shape, y_type);
      }
    }
  }
}

struct Gradients {
  Floats dx, dweight, dbias;

  friend bool operator==(const Gradients&, const Gradients&) = default;
};

// Names the input that dx overwrites.
enum class Over { kNothing, kDy, kAddend };

// dweight and dbias hold 1 at first. The addend may be empty.
Gradients RunGradient(const Shape& shape, Type type, const Floats& x, const Floats& dy,
                      const Floats& weight, const Expected& expected, bool adds, Over over,
                      const Floats& addend = {}) {
  const DeviceMatrix of_x(type, shape.count, shape.channels, shape.stride, x);
  const DeviceMatrix of_dy(type, shape.count, shape.channels, shape.stride, dy);
  const DeviceMatrix other(type, shape.count, shape.channels, shape.stride);
  const DeviceMatrix of_addend(type, shape.count, shape.channels, shape.stride,
                               addend.empty() ? dy : addend);
  const DeviceMatrix& dx = over == Over::kDy ? of_dy : over == Over::kAddend ? of_addend : other;
  const DeviceArray<float> w(weight);
  const DeviceArray<float> mean(Floats(expected.mean.begin(), expected.mean.end()));
  const DeviceArray<float> inverse(Floats(expected.inverse.begin(), expected.inverse.end()));
  const DeviceArray<float> dweight(Floats(static_cast<size_t>(shape.channels), 1));
  const DeviceArray<float> dbias(Floats(static_cast<size_t>(shape.channels), 1));
  const DeviceArray<uint8_t> workspace(
      static_cast<size_t>(LayerNormWorkspace(shape.count, shape.channels)));
  LayerNormGradient(of_dy.view(), of_x.view(), w.data(), mean.data(), inverse.data(),
                    addend.empty() ? View() : of_addend.view(), dx.view(), dweight.data(),
                    dbias.data(), adds, shape.count, shape.channels, workspace.data(), nullptr);
  ExpectPaddingCleared(dx, shape, type);
  return {dx.Read(), dweight.Read(), dbias.Read()};
}

TEST(LayerNormGradient, IsThatOfDoubleLoops) {
  for (const Type type : kTypes) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(std::string(NameOf(type)) + ", channels " + std::to_string(shape.channels));
      const Floats x = Rounded(RandomVectors(4, shape), type);
      const Floats dy = Rounded(RandomFloats(5, shape.count * shape.channels), type);
      const Floats weight = RandomFloats(6, shape.channels);
      Expected expected = Compute(shape, x, weight, weight, dy);
      const Gradients written =
          RunGradient(shape, type, x, dy, weight, expected, false, Over::kNothing);
      ExpectNear(written.dx, expected.dx, ToleranceOf(type) + 2e-6, "dx");
      ExpectNear(written.dweight, expected.dweight, 5e-6, "dweight");
      ExpectNear(written.dbias, expected.dbias, 5e-6, "dbias");
      const Gradients added = RunGradient(shape, type, x, dy, weight, expected, true, Over::kDy);
      EXPECT_EQ(added.dx, written.dx);
      for (size_t c = 0; c < expected.dweight.size(); ++c) {
        expected.dweight[c] += 1;
        expected.dbias[c] += 1;
      }
      ExpectNear(added.dweight, expected.dweight, 5e-6, "dweight");
      ExpectNear(added.dbias, expected.dbias, 5e-6, "dbias");
    }
  }
}

TEST(LayerNormGradient, AddsAnotherGradientInPlaceOrNot) {
  for (const Type type : kTypes) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(std::string(NameOf(type)) + ", channels " + std::to_string(shape.channels));
      const Floats x = Rounded(RandomVectors(4, shape), type);
      const Floats dy = Rounded(RandomFloats(5, shape.count * shape.channels), type);
      const Floats addend = Rounded(RandomFloats(7, shape.count * shape.channels), type);
      const Floats weight = RandomFloats(6, shape.channels);
      Expected expected = Compute(shape, x, weight, weight, dy);
      for (size_t i = 0; i < addend.size(); ++i) {
        expected.dx[i] += static_cast<double>(addend[i]);
      }
      for (const Over over : {Over::kNothing, Over::kDy, Over::kAddend}) {
        const Gradients sums =
            RunGradient(shape, type, x, dy, weight, expected, false, over, addend);
        ExpectNear(sums.dx, expected.dx, ToleranceOf(type) + 2e-6, "dx");
        ExpectNear(sums.dweight, expected.dweight, 5e-6, "dweight");
      }
    }
  }
}

TEST(LayerNormGradient, OfParametersAloneNeedsNoDx) {
  const Shape shape = {50, 24, 24};
  const Floats x = RandomVectors(4, shape);
  const Floats dy = RandomFloats(5, int64_t{50} * 24);
  const Floats weight = RandomFloats(6, 24);
  const Expected expected = Compute(shape, x, weight, weight, dy);
  const DeviceMatrix of_x(Type::kF32, 50, 24, 24, x);
  const DeviceMatrix of_dy(Type::kF32, 50, 24, 24, dy);
  const DeviceArray<float> w(weight);
  const DeviceArray<float> mean(Floats(expected.mean.begin(), expected.mean.end()));
  const DeviceArray<float> inverse(Floats(expected.inverse.begin(), expected.inverse.end()));
  const DeviceArray<float> dweight(24);
  const DeviceArray<float> dbias(24);
  const DeviceArray<uint8_t> workspace(static_cast<size_t>(LayerNormWorkspace(50, 24)));
  LayerNormGradient(of_dy.view(), of_x.view(), w.data(), mean.data(), inverse.data(), View{},
                    View{}, dweight.data(), dbias.data(), false, 50, 24, workspace.data(), nullptr);
  ExpectNear(dweight.Read(), expected.dweight, 5e-6, "dweight");
  ExpectNear(dbias.Read(), expected.dbias, 5e-6, "dbias");
  EXPECT_EQ(of_dy.Read(), dy);
}

TEST(LayerNormGradient, HasTheSameBitsInAnyOrderOfThreads) {
  const Shape shape = {4500, 40, 40};  // many slices
  const Floats x = RandomVectors(4, shape);
  const Floats dy = RandomFloats(5, shape.count * shape.channels);
  const Floats weight = RandomFloats(6, shape.channels);
  const Expected expected = Compute(shape, x, weight, weight, dy);
  ShuffleDevice(300);
  const Gradients first =
      RunGradient(shape, Type::kF32, x, dy, weight, expected, false, Over::kNothing);
  ExpectNear(first.dweight, expected.dweight, 5e-6, "dweight");
  ShuffleDevice(301);
  EXPECT_EQ(first, RunGradient(shape, Type::kF32, x, dy, weight, expected, false, Over::kNothing));
}

}  // namespace
}  // namespace trainyard::engine::cuda
