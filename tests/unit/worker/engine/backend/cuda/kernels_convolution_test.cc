// Compares convolutions without tensor cores with plain loops in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "worker/engine/backend/cuda/kernels/convolution.h"

namespace trainyard::engine::cuda {
namespace {

// The shapes have strides, padding, dilation, groups, and a weight whose channels are padded.
std::vector<ConvShape> Shapes() {
  return {
      {{2, 3, 6, 5}, {2, 7, 6, 5}, 3, 1, 1, 1, 1, 8},
      {{2, 6, 7, 7}, {2, 4, 4, 4}, 3, 2, 1, 1, 2, 3},
      {{1, 5, 7, 8}, {1, 5, 3, 4}, 3, 1, 0, 2, 5, 1},
      {{3, 8, 5, 5}, {3, 16, 3, 3}, 1, 2, 0, 1, 1, 8},
  };
}

int64_t WeightAt(const ConvShape& s, int64_t k, int64_t i, int64_t j, int64_t c) {
  return ((k * s.kernel + i) * s.kernel + j) * s.weight_stride + c;
}

// Calls visit(pixel of y, k, pixel of x, channel of x, place in the weight) for every product.
template <class Visit>
void ForEachProduct(const ConvShape& s, const Visit& visit) {
  const int64_t inputs = s.in.channels / s.groups;
  const int64_t outputs = s.out.channels / s.groups;
  for (int64_t y = 0; y < s.out.pixels(); ++y) {
    for (int64_t i = 0; i < s.kernel; ++i) {
      for (int64_t j = 0; j < s.kernel; ++j) {
        const int64_t h = y / s.out.width % s.out.height * s.stride + i * s.dilation - s.padding;
        const int64_t w = y % s.out.width * s.stride + j * s.dilation - s.padding;
        if (h < 0 || h >= s.in.height || w < 0 || w >= s.in.width) continue;
        const int64_t x = (y / s.out.width / s.out.height * s.in.height + h) * s.in.width + w;
        for (int64_t k = 0; k < s.out.channels; ++k) {
          for (int64_t c = 0; c < inputs; ++c) {
            visit(y, k, x, k / outputs * inputs + c, WeightAt(s, k, i, j, c));
          }
        }
      }
    }
  }
}

Layout LayoutOf(Type type, int64_t channels, bool is_padded) {
  return {"", type,     channels, is_padded ? PaddedChannels(channels, type) : channels + 1,
          0,  is_padded};
}

class ConvolutionKernels : public ::testing::TestWithParam<Type> {};

TEST_P(ConvolutionKernels, AreSumsOfProducts) {
  for (const ConvShape& s : Shapes()) {
    for (const bool is_fused : {false, true}) {
      const Layout of_x = LayoutOf(GetParam(), s.in.channels, is_fused);
      const Layout of_y = LayoutOf(GetParam(), s.out.channels, is_fused);
      const TestView x = TestView::Random(of_x, s.in.pixels(), 1);
      const TestView dy = TestView::Random(of_y, s.out.pixels(), 2);
      const int64_t count = s.out.channels * s.kernel * s.kernel * s.weight_stride;
      const TestView weight = TestView::Random({"", GetParam(), count, count, 0, false}, 1, 3);
      const std::vector<float> bias = ChannelValues(s.out.channels, -1, 0.5F);
      const DeviceArray<float> biases(bias);
      TestView y(of_y, s.out.pixels());
      TestView dx(of_x, s.in.pixels());
      const DeviceArray<float> dweight(std::vector<float>(static_cast<size_t>(count), 50));
      ConvForward(s, x.view(), weight.view().data, is_fused ? biases.data() : nullptr, is_fused,
                  y.view(), is_fused, nullptr);
      ConvInputGradient(s, dy.view(), weight.view().data, dx.view(), is_fused, nullptr);
      ConvWeightGradient(s, dy.view(), x.view(), dweight.data(), is_fused, nullptr);

      std::vector<double> sums(static_cast<size_t>(s.out.pixels() * s.out.channels));
      std::vector<double> dxs(static_cast<size_t>(s.in.pixels() * s.in.channels));
      std::vector<double> dweights(static_cast<size_t>(count), is_fused ? 50 : 0);
      std::vector<bool> is_weight(static_cast<size_t>(count));
      ForEachProduct(s, [&](int64_t yp, int64_t k, int64_t xp, int64_t c, int64_t at) {
        sums[static_cast<size_t>(yp * s.out.channels + k)] += x.at(xp, c) * weight.at(0, at);
        dxs[static_cast<size_t>(xp * s.in.channels + c)] += dy.at(yp, k) * weight.at(0, at);
        dweights[static_cast<size_t>(at)] += x.at(xp, c) * dy.at(yp, k);
        is_weight[static_cast<size_t>(at)] = true;
      });
      EXPECT_EQ(y.Differences([&](int64_t p, int64_t k) {
        const double sum = sums[static_cast<size_t>(p * s.out.channels + k)];
        return is_fused ? std::max(sum + static_cast<double>(bias[static_cast<size_t>(k)]), 0.0)
                        : sum;
      }),
                "");
      EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) {
        return dxs[static_cast<size_t>(p * s.in.channels + c)];
      }),
                "");
      const std::vector<float> found = dweight.Read();
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(found[i]), is_weight[i] ? dweights[i] : 50, 1e-3) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ConvolutionKernels,
                         ::testing::Values(Type::kF32, Type::kF16, Type::kBf16),
                         [](const auto& test) {
                           return test.param == Type::kF32   ? "f32"
                                  : test.param == Type::kF16 ? "f16"
                                                             : "bf16";
                         });

}  // namespace
}  // namespace trainyard::engine::cuda
