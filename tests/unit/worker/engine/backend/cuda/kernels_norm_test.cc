// Compares batch_norm's kernels with plain loops in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "tests/unit/worker/engine/backend/cuda/norm_testing.h"
#include "worker/engine/backend/cuda/kernels/norm.h"

namespace trainyard::engine::cuda {
namespace {

// The first number of pixels takes one launch, the second two, with several tiles for each block of
// channels.
constexpr int64_t kFewPixels = 50;
constexpr int64_t kManyPixels = 2304;

// Expects that `sums` hold the initial values and a quarter of the statistics, whose variance is
// unbiased.
void ExpectSums(const Statistics& expected, int64_t pixels, const std::vector<float>& mean,
                const std::vector<float>& variance, double initial_mean, double initial_variance) {
  const double unbiased = static_cast<double>(pixels) / static_cast<double>(pixels - 1);
  for (size_t c = 0; c < mean.size(); ++c) {
    EXPECT_NEAR(static_cast<double>(mean[c]), 0.25 * expected.mean[c] + initial_mean, 1e-5);
    EXPECT_NEAR(static_cast<double>(variance[c]),
                0.25 * expected.variance[c] * unbiased + initial_variance, 1e-5);
  }
}

// Expects that a bit is set where value(pixel, channel) is positive, and that none is set behind
// the channels.
template <class Value>
void ExpectMask(const std::vector<uint32_t>& bits, int64_t pixels, int64_t channels,
                const Value& value) {
  const int64_t words = MaskWords(channels);
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = 0; c < words * 32; ++c) {
      const bool is_set = (bits[static_cast<size_t>(p * words + c / 32)] >> (c % 32) & 1U) != 0;
      if (c >= channels) {
        EXPECT_FALSE(is_set);
      } else if (std::abs(value(p, c)) > 1e-4) {
        EXPECT_EQ(is_set, value(p, c) > 0) << p << " " << c;
      }
    }
  }
}

class NormKernels : public ::testing::TestWithParam<Layout> {};

TEST_P(NormKernels, NormaliseByTheBatch) {
  const Layout& layout = GetParam();
  const auto channels = static_cast<size_t>(layout.channels);
  const std::vector<float> weight = ChannelValues(layout.channels, -0.5F, 0.4F);
  const std::vector<float> bias = ChannelValues(layout.channels, 0.3F, -0.2F);
  for (const int64_t pixels : {kFewPixels, kManyPixels}) {
    for (const bool is_fused : {false, true}) {
      const TestView x = TestView::Random(layout, pixels, 1, 2);
      const TestView residual = TestView::Random(layout, pixels, 2);
      TestView y(layout, pixels);
      const DeviceArray<float> weights(weight);
      const DeviceArray<float> biases(bias);
      const DeviceArray<float> mean(channels);
      const DeviceArray<float> variance(channels);
      const DeviceArray<float> mean_sum(std::vector<float>(channels, 10));
      const DeviceArray<float> variance_sum(std::vector<float>(channels, 20));
      const size_t words = static_cast<size_t>(pixels * MaskWords(layout.channels));
      const DeviceArray<uint32_t> mask(words);
      const DeviceArray<StepControl> control(std::vector<StepControl>{{.weight = 0.25F}});
      const Scratch scratch(pixels, layout.channels);
      const NormForward norm = {.x = x.view(),
                                .y = y.view(),
                                .residual = is_fused ? residual.view() : View(),
                                .relu = is_fused,
                                .mask = is_fused ? mask.data() : nullptr,
                                .weight = weights.data(),
                                .bias = biases.data(),
                                .eps = kEps,
                                .pixels = pixels,
                                .channels = layout.channels,
                                .clears_padding = layout.clears_padding};
      NormTraining(norm, mean.data(), variance.data(),
                   {mean_sum.data(), variance_sum.data(), is_fused, control.data()},
                   scratch.workspace.data(), scratch.tickets.data(), nullptr);

      const Statistics expected = StatisticsOf(x, pixels, layout.channels);
      const auto normalized = [&](int64_t p, int64_t c) {
        const double scale = At(weight, c) / std::sqrt(At(expected.variance, c) + 1e-5);
        return (x.at(p, c) - At(expected.mean, c)) * scale + At(bias, c) +
               (is_fused ? residual.at(p, c) : 0.0);
      };
      EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) {
        return is_fused ? std::max(normalized(p, c), 0.0) : normalized(p, c);
      }),
                "")
          << pixels;
      EXPECT_TRUE(scratch.HasZeroTickets());
      ExpectSums(expected, pixels, mean_sum.Read(), variance_sum.Read(), is_fused ? 10 : 0,
                 is_fused ? 20 : 0);
      for (int64_t c = 0; c < layout.channels; ++c) {
        EXPECT_NEAR(At(mean.Read(), c), At(expected.mean, c), 1e-5);
        EXPECT_NEAR(At(variance.Read(), c), At(expected.variance, c), 1e-5);
      }
      if (is_fused) ExpectMask(mask.Read(), pixels, layout.channels, normalized);
    }
  }
}

// Gradients with everything that is fused (mask, second gradient, addend, residual), or with the
// sign computed again, or with neither.
enum class Kind { kPlain, kSign, kMask };

void CheckGradient(const Layout& layout, int64_t pixels, Kind kind) {
  const auto channels = static_cast<size_t>(layout.channels);
  const std::vector<float> weight = ChannelValues(layout.channels, -0.5F, 0.4F);
  const std::vector<float> bias = ChannelValues(layout.channels, 0.3F, -0.2F);
  const TestView x = TestView::Random(layout, pixels, 1, 2);
  const TestView dy = TestView::Random(layout, pixels, 2);
  const TestView second = TestView::Random(layout, pixels, 3);
  const TestView addend = TestView::Random(layout, pixels, 4);
  TestView dx(layout, pixels);
  TestView residual_gradient(layout, pixels);
  const Statistics statistics = StatisticsOf(x, pixels, layout.channels);
  const int64_t words = MaskWords(layout.channels);
  std::vector<uint32_t> bits(static_cast<size_t>(pixels * words));
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint32_t>(i * 2654435761U);
  const DeviceArray<uint32_t> mask(bits);
  const DeviceArray<float> weights(weight);
  const DeviceArray<float> biases(bias);
  const DeviceArray<float> mean(std::vector<float>(statistics.mean.begin(), statistics.mean.end()));
  const DeviceArray<float> variance(
      std::vector<float>(statistics.variance.begin(), statistics.variance.end()));
  const DeviceArray<float> dweight(std::vector<float>(channels, 100));
  const DeviceArray<float> dbias(std::vector<float>(channels, 200));
  const Scratch scratch(pixels, layout.channels);
  const bool is_masked = kind == Kind::kMask;
  NormGradient norm;
  norm.dy = dy.view();
  norm.x = x.view();
  norm.second_gradient = is_masked ? second.view() : View();
  norm.mask = is_masked ? mask.data() : nullptr;
  norm.relu = kind != Kind::kPlain;
  norm.bias = biases.data();
  norm.weight = weights.data();
  norm.mean = mean.data();
  norm.variance = variance.data();
  norm.addend = is_masked ? addend.view() : View();
  norm.dx = dx.view();
  norm.residual_gradient = is_masked ? residual_gradient.view() : View();
  norm.dweight = dweight.data();
  norm.dbias = dbias.data();
  norm.adds = kind == Kind::kSign;
  norm.pixels = pixels;
  norm.channels = layout.channels;
  norm.clears_padding = layout.clears_padding;
  NormBackward(norm, scratch.workspace.data(), scratch.tickets.data(), nullptr);
  EXPECT_TRUE(scratch.HasZeroTickets());

  const auto centred = [&](int64_t p, int64_t c) {
    return (x.at(p, c) - At(statistics.mean, c)) / std::sqrt(At(statistics.variance, c) + 1e-5);
  };
  const auto d = [&](int64_t p, int64_t c) {
    bool is_kept = true;
    if (kind == Kind::kSign) is_kept = centred(p, c) * At(weight, c) + At(bias, c) > 0;
    if (is_masked) is_kept = (bits[static_cast<size_t>(p * words + c / 32)] >> (c % 32) & 1U) != 0;
    return is_kept ? dy.at(p, c) + (is_masked ? second.at(p, c) : 0.0) : 0.0;
  };
  std::vector<double> sums(channels);
  std::vector<double> products(channels);
  for (int64_t c = 0; c < layout.channels; ++c) {
    for (int64_t p = 0; p < pixels; ++p) {
      sums[static_cast<size_t>(c)] += d(p, c);
      products[static_cast<size_t>(c)] += d(p, c) * centred(p, c);
    }
    const bool adds = kind == Kind::kSign;
    const double room = 1e-5 * static_cast<double>(pixels);
    EXPECT_NEAR(At(dbias.Read(), c), At(sums, c) + (adds ? 200 : 0), room) << c;
    EXPECT_NEAR(At(dweight.Read(), c), At(products, c) + (adds ? 100 : 0), room) << c;
  }
  const double n = static_cast<double>(pixels);
  // The residual's gradient is rounded before the second pass reads it.
  EXPECT_EQ(dx.Differences(
                [&](int64_t p, int64_t c) {
                  const double scale = At(weight, c) / std::sqrt(At(statistics.variance, c) + 1e-5);
                  return scale * (d(p, c) - (At(sums, c) + centred(p, c) * At(products, c)) / n) +
                         (is_masked ? addend.at(p, c) : 0.0);
                },
                4),
            "")
      << pixels << " " << static_cast<int>(kind);
  if (is_masked) {
    EXPECT_EQ(residual_gradient.Differences(d), "") << pixels;
  }
}

TEST_P(NormKernels, ComputeTheGradient) {
  for (const Kind kind : {Kind::kPlain, Kind::kSign, Kind::kMask}) {
    CheckGradient(GetParam(), kFewPixels, kind);
    CheckGradient(GetParam(), kManyPixels, kind);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, NormKernels, ::testing::ValuesIn(Layouts()),
                         [](const auto& test) { return NameOf(test.param); });

TEST(NormStatistics, KeepTheVarianceOfValuesFarFromZero) {
  const Layout layout = {"f32", Type::kF32, 16, 16, 0, false};
  const TestView x = TestView::Random(layout, kManyPixels, 5, 1000);
  TestView y(layout, kManyPixels);
  const DeviceArray<float> ones(std::vector<float>(16, 1));
  const DeviceArray<float> zeros(std::vector<float>(16, 0));
  const DeviceArray<float> mean(16);
  const DeviceArray<float> variance(16);
  const Scratch scratch(kManyPixels, 16);
  NormForward norm = {.x = x.view(), .y = y.view(), .residual = {}, .weight = ones.data()};
  norm.bias = zeros.data();
  norm.pixels = kManyPixels;
  norm.channels = 16;
  NormTraining(norm, mean.data(), variance.data(), {}, scratch.workspace.data(),
               scratch.tickets.data(), nullptr);
  const Statistics expected = StatisticsOf(x, kManyPixels, 16);
  for (int64_t c = 0; c < 16; ++c) {
    EXPECT_NEAR(At(mean.Read(), c), At(expected.mean, c), 1e-4);
    EXPECT_NEAR(At(variance.Read(), c), At(expected.variance, c), 2e-5);
  }
}

TEST(NormStatistics, FollowFromSumsOfAConvolution) {
  const DeviceArray<float> sum(std::vector<float>{30, -10});
  const DeviceArray<float> square_sum(std::vector<float>{110, 90});
  const DeviceArray<float> mean(2), variance(2), mean_sum(2), variance_sum(2);
  const DeviceArray<StepControl> control(std::vector<StepControl>{{.weight = 0.5F}});
  NormForward norm;
  norm.pixels = 10;
  norm.channels = 2;
  NormFinalize(sum.data(), square_sum.data(), norm, mean.data(), variance.data(),
               {mean_sum.data(), variance_sum.data(), false, control.data()}, nullptr);
  EXPECT_EQ(mean.Read(), (std::vector<float>{3, -1}));
  EXPECT_EQ(variance.Read(), (std::vector<float>{2, 8}));
  EXPECT_EQ(mean_sum.Read(), (std::vector<float>{1.5F, -0.5F}));
  EXPECT_FLOAT_EQ(variance_sum.Read()[1], 0.5F * 8 * 10 / 9);
}

// Readers of x compute y by a scale and a shift, which are zero in the padding.
TEST(NormCoefficients, GiveTheOutputToThoseWhoReadTheInput) {
  for (const Type type : {Type::kF16, Type::kBf16}) {
    for (const int64_t channels : {16, 13}) {
      const Layout layout = {"x", type, channels, 16, 0, channels < 16};
      const Layout row = {"coefficients", type, channels, 16, 0, true};
      const std::vector<float> weight = ChannelValues(channels, -0.5F, 0.4F);
      const std::vector<float> bias = ChannelValues(channels, 0.3F, -0.2F);
      const DeviceArray<float> weights(weight), biases(bias);
      const TestView x = TestView::Random(layout, kManyPixels, 1, 2);
      const Statistics expected = StatisticsOf(x, kManyPixels, channels);
      const auto scale = [&](int64_t, int64_t c) {
        return At(weight, c) / std::sqrt(At(expected.variance, c) + 1e-5);
      };
      const auto shift = [&](int64_t, int64_t c) {
        return At(bias, c) - At(expected.mean, c) * scale(0, c);
      };
      std::vector<float> sum(static_cast<size_t>(channels)), square_sum(sum.size());
      for (int64_t c = 0; c < channels; ++c) {
        const auto i = static_cast<size_t>(c);
        const double mean = At(expected.mean, c);
        sum[i] = static_cast<float>(kManyPixels * mean);
        square_sum[i] = static_cast<float>(kManyPixels * (At(expected.variance, c) + mean * mean));
      }
      const DeviceArray<float> sums(sum), square_sums(square_sum);
      for (const bool of_sums : {false, true}) {
        TestView scales(row, 1), shifts(row, 1);
        const DeviceArray<float> mean(sum.size()), variance(sum.size());
        const DeviceArray<float> mean_sum(sum.size()), variance_sum(sum.size());
        const DeviceArray<StepControl> control(std::vector<StepControl>{{.weight = 0.25F}});
        const StatisticSums into = {mean_sum.data(), variance_sum.data(), false, control.data()};
        const Scratch scratch(kManyPixels, channels);
        const NormForward norm = {.x = x.view(),
                                  .y = {},
                                  .scale = scales.view(),
                                  .shift = shifts.view(),
                                  .relu = true,
                                  .weight = weights.data(),
                                  .bias = biases.data(),
                                  .eps = kEps,
                                  .pixels = kManyPixels,
                                  .channels = channels};
        if (of_sums) {
          NormFinalize(sums.data(), square_sums.data(), norm, mean.data(), variance.data(), into,
                       nullptr);
        } else {
          NormTraining(norm, mean.data(), variance.data(), into, scratch.workspace.data(),
                       scratch.tickets.data(), nullptr);
        }
        EXPECT_EQ(scales.Differences(scale), "") << channels << " " << of_sums;
        EXPECT_EQ(shifts.Differences(shift), "") << channels << " " << of_sums;
        ExpectSums(expected, kManyPixels, mean_sum.Read(), variance_sum.Read(), 0, 0);
        for (int64_t c = 0; c < channels; ++c) {
          EXPECT_NEAR(At(mean.Read(), c), At(expected.mean, c), 1e-5);
          EXPECT_NEAR(At(variance.Read(), c), At(expected.variance, c), 1e-4);
        }
        EXPECT_TRUE(scratch.HasZeroTickets());
      }
    }
  }
}

// A convolution's gradient takes the sums of what it has rectified; the rest is as NormBackward
// computes it.
TEST(NormGradients, FollowFromSumsOfAConvolution) {
  for (const int64_t pixels : {kFewPixels, kManyPixels}) {
    const Layout layout = {"f16", Type::kF16, 13, 16, 0, true};
    const int64_t stride = NormSumsStride(13);
    const TestView x = TestView::Random(layout, pixels, 1, 2);
    const TestView dy = TestView::Random(layout, pixels, 2);
    const TestView addend = TestView::Random(layout, pixels, 4);
    const Statistics statistics = StatisticsOf(x, pixels, 13);
    const DeviceArray<float> weights(ChannelValues(13, -0.5F, 0.4F));
    const DeviceArray<float> biases(ChannelValues(13, 0.3F, -0.2F));
    const DeviceArray<float> mean(
        std::vector<float>(statistics.mean.begin(), statistics.mean.end()));
    const DeviceArray<float> variance(
        std::vector<float>(statistics.variance.begin(), statistics.variance.end()));
    const Scratch scratch(pixels, 13);
    std::vector<std::vector<float>> found[2];
    for (const bool of_sums : {false, true}) {
      TestView dx(layout, pixels);
      const DeviceArray<float> dweight(std::vector<float>(13, 100));
      const DeviceArray<float> dbias(std::vector<float>(13, 200));
      NormGradient norm;
      norm.dy = dy.view();
      norm.x = x.view();
      norm.bias = biases.data();
      norm.weight = weights.data();
      norm.mean = mean.data();
      norm.variance = variance.data();
      norm.addend = addend.view();
      norm.dx = dx.view();
      norm.dweight = dweight.data();
      norm.dbias = dbias.data();
      norm.adds = true;
      norm.pixels = pixels;
      norm.channels = 13;
      norm.clears_padding = true;
      if (of_sums) {
        const std::vector<float> before = scratch.workspace.Read();
        const DeviceArray<float> sums(
            std::vector<float>(before.begin(), before.begin() + 2 * stride));
        NormBackwardOfSums(norm, sums.data(), nullptr);
      } else {
        NormBackwardSums(norm, scratch.workspace.data(), scratch.tickets.data(), nullptr);
        NormBackwardInput(norm, scratch.workspace.data(), {}, nullptr);
      }
      std::vector<float> all;
      EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) {
        all.push_back(static_cast<float>(dx.at(p, c)));
        return dx.at(p, c);
      }),
                "");
      found[of_sums ? 1 : 0] = {all, dweight.Read(), dbias.Read()};
    }
    EXPECT_EQ(found[1], found[0]) << pixels;
    EXPECT_NE(found[1][1], std::vector<float>(13, 100));
  }
}

TEST(NormGradients, AreReadByAConvolutionInFourRows) {
  NormGradient norm;
  const DeviceArray<float> mean(std::vector<float>{1, 2}), variance(std::vector<float>{4, 0.25F});
  const DeviceArray<float> weight(std::vector<float>{5, 6}), bias(std::vector<float>{7, 8});
  const DeviceArray<float> operands(std::vector<float>(32, 9));
  norm.mean = mean.data();
  norm.variance = variance.data();
  norm.weight = weight.data();
  norm.bias = bias.data();
  norm.eps = 0;
  norm.channels = 2;
  NormPackOperands(norm, operands.data(), nullptr);
  std::vector<float> expected(32, 0);
  const float values[4][2] = {{1, 2}, {0.5F, 2}, {5, 6}, {7, 8}};
  for (size_t row = 0; row < 4; ++row) {
    for (size_t c = 0; c < 2; ++c) expected[8 * row + c] = values[row][c];
  }
  EXPECT_EQ(operands.Read(), expected);
}

}  // namespace
}  // namespace trainyard::engine::cuda
