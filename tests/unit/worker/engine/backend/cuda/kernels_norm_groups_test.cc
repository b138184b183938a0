// Compares batch_norm's kernels over several groups of rows with plain loops in f64, group by
// group.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "tests/unit/worker/engine/backend/cuda/matrices.h"
#include "tests/unit/worker/engine/backend/cuda/norm_testing.h"
#include "worker/engine/backend/cuda/kernels/norm.h"

namespace trainyard::engine::cuda {
namespace {

// Rows that begin new groups, and the pixels of a row. Groups of few pixels take one launch; of
// many, two, with several tiles each.
struct Division {
  std::vector<int32_t> begins;
  int64_t plane = 1;

  int64_t groups() const { return static_cast<int64_t>(begins.size()) - 1; }
  int64_t begin(int64_t group) const { return begins[static_cast<size_t>(group)] * plane; }
  int64_t pixels() const { return begin(groups()); }
  double share(int64_t group) const {
    return static_cast<double>(begin(group + 1) - begin(group)) / static_cast<double>(pixels());
  }
};

std::vector<Division> Divisions() {
  return {{{0, 3, 4, 9}, 6}, {{0, 2, 7}, 1031}, {{0, 1, 2, 3, 4}, 2304}};
}

class NormGroupKernels : public ::testing::TestWithParam<Layout> {
 protected:
  ~NormGroupKernels() override { cuda::testing::ShuffleDevice(1); }
};

TEST_P(NormGroupKernels, NormaliseEachGroup) {
  const Layout& layout = GetParam();
  const auto channels = static_cast<size_t>(layout.channels);
  const std::vector<float> weight = ChannelValues(layout.channels, -0.5F, 0.4F);
  const std::vector<float> bias = ChannelValues(layout.channels, 0.3F, -0.2F);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    cuda::testing::ShuffleDevice(seed);
    const Division division = Divisions()[seed - 1];
    const int64_t pixels = division.pixels();
    const auto statistics = static_cast<size_t>(division.groups()) * channels;
    const TestView x = TestView::Random(layout, pixels, seed, 2);
    TestView y(layout, pixels);
    const DeviceArray<float> weights(weight), biases(bias), mean(statistics), variance(statistics);
    const DeviceArray<float> mean_sum(std::vector<float>(channels, 10));
    const DeviceArray<float> variance_sum(std::vector<float>(channels, 20));
    const DeviceArray<int32_t> begins(division.begins);
    const DeviceArray<StepControl> control(std::vector<StepControl>{{.weight = 0.25F}});
    const Scratch scratch(pixels, layout.channels, division.groups());
    NormForward norm = {.x = x.view(), .y = y.view()};
    norm.weight = weights.data();
    norm.bias = biases.data();
    norm.pixels = pixels;
    norm.channels = layout.channels;
    norm.groups = {division.groups(), begins.data(), division.plane};
    norm.clears_padding = layout.clears_padding;
    const int64_t kernels = cuda::testing::LaunchesSoFar();
    NormTraining(norm, mean.data(), variance.data(),
                 {mean_sum.data(), variance_sum.data(), true, control.data()},
                 scratch.workspace.data(), scratch.tickets.data(), nullptr);
    EXPECT_TRUE(scratch.HasZeroTickets());
    EXPECT_LE(cuda::testing::LaunchesSoFar() - kernels, cuda::NormKernels(pixels));

    std::vector<double> means(channels, 10), variances(channels, 20);
    std::vector<Statistics> expected;
    for (int64_t group = 0; group < division.groups(); ++group) {
      const int64_t begin = division.begin(group), end = division.begin(group + 1);
      expected.push_back(StatisticsOf(x, begin, end, layout.channels));
      const double n = static_cast<double>(end - begin), share = division.share(group);
      for (size_t c = 0; c < channels; ++c) {
        const size_t at = static_cast<size_t>(group) * channels + c;
        EXPECT_NEAR(static_cast<double>(mean.Read()[at]), expected.back().mean[c], 1e-5);
        EXPECT_NEAR(static_cast<double>(variance.Read()[at]), expected.back().variance[c], 1e-5);
        means[c] += 0.25 * share * expected.back().mean[c];
        variances[c] += 0.25 * share * expected.back().variance[c] * n / (n - 1);
      }
    }
    for (int64_t c = 0; c < layout.channels; ++c) {
      EXPECT_NEAR(At(mean_sum.Read(), c), At(means, c), 1e-5);
      EXPECT_NEAR(At(variance_sum.Read(), c), At(variances, c), 1e-5);
    }
    EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) {
      size_t group = 0;
      while (division.begin(static_cast<int64_t>(group) + 1) <= p) ++group;
      const double scale = At(weight, c) / std::sqrt(At(expected[group].variance, c) + 1e-5);
      return (x.at(p, c) - At(expected[group].mean, c)) * scale + At(bias, c);
    }),
              "")
        << seed;
  }
}

TEST_P(NormGroupKernels, ComputeTheGradientOfEachGroup) {
  const Layout& layout = GetParam();
  const auto channels = static_cast<size_t>(layout.channels);
  const std::vector<float> weight = ChannelValues(layout.channels, -0.5F, 0.4F);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    cuda::testing::ShuffleDevice(seed);
    const Division division = Divisions()[seed - 1];
    const int64_t pixels = division.pixels();
    const TestView x = TestView::Random(layout, pixels, seed, 2);
    const TestView dy = TestView::Random(layout, pixels, seed + 10);
    TestView dx(layout, pixels);
    std::vector<Statistics> of_group;
    std::vector<float> mean, variance;
    for (int64_t group = 0; group < division.groups(); ++group) {
      of_group.push_back(
          StatisticsOf(x, division.begin(group), division.begin(group + 1), layout.channels));
      mean.insert(mean.end(), of_group.back().mean.begin(), of_group.back().mean.end());
      variance.insert(variance.end(), of_group.back().variance.begin(),
                      of_group.back().variance.end());
    }
    const DeviceArray<float> weights(weight), means(mean), variances(variance);
    const DeviceArray<float> dweight(std::vector<float>(channels, 100));
    const DeviceArray<float> dbias(std::vector<float>(channels, 200));
    const DeviceArray<int32_t> begins(division.begins);
    const Scratch scratch(pixels, layout.channels, division.groups());
    NormGradient norm;
    norm.dy = dy.view();
    norm.x = x.view();
    norm.weight = weights.data();
    norm.mean = means.data();
    norm.variance = variances.data();
    norm.dx = dx.view();
    norm.dweight = dweight.data();
    norm.dbias = dbias.data();
    norm.adds = true;
    norm.pixels = pixels;
    norm.channels = layout.channels;
    norm.groups = {division.groups(), begins.data(), division.plane};
    norm.clears_padding = layout.clears_padding;
    NormBackward(norm, scratch.workspace.data(), scratch.tickets.data(), nullptr);
    EXPECT_TRUE(scratch.HasZeroTickets());

    const auto centred = [&](size_t group, int64_t p, int64_t c) {
      return (x.at(p, c) - At(of_group[group].mean, c)) /
             std::sqrt(At(of_group[group].variance, c) + 1e-5);
    };
    std::vector<std::vector<double>> sums, products;  // by group, then by channel
    for (size_t group = 0; group < of_group.size(); ++group) {
      sums.emplace_back(channels);
      products.emplace_back(channels);
      const auto number = static_cast<int64_t>(group);
      for (int64_t p = division.begin(number); p < division.begin(number + 1); ++p) {
        for (int64_t c = 0; c < layout.channels; ++c) {
          sums[group][static_cast<size_t>(c)] += dy.at(p, c);
          products[group][static_cast<size_t>(c)] += dy.at(p, c) * centred(group, p, c);
        }
      }
    }
    const double room = 1e-5 * static_cast<double>(pixels);
    for (int64_t c = 0; c < layout.channels; ++c) {
      double sum = 200;
      double product = 100;
      for (size_t group = 0; group < of_group.size(); ++group) {
        sum += At(sums[group], c);
        product += At(products[group], c);
      }
      EXPECT_NEAR(At(dbias.Read(), c), sum, room) << c;
      EXPECT_NEAR(At(dweight.Read(), c), product, room) << c;
    }
    EXPECT_EQ(dx.Differences(
                  [&](int64_t p, int64_t c) {
                    size_t group = 0;
                    while (division.begin(static_cast<int64_t>(group) + 1) <= p) ++group;
                    const double n =
                        division.share(static_cast<int64_t>(group)) * static_cast<double>(pixels);
                    const double scale =
                        At(weight, c) / std::sqrt(At(of_group[group].variance, c) + 1e-5);
                    const double mean_product = centred(group, p, c) * At(products[group], c);
                    return scale * (dy.at(p, c) - (At(sums[group], c) + mean_product) / n);
                  },
                  4),
              "")
        << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, NormGroupKernels, ::testing::ValuesIn(Layouts()),
                         [](const auto& test) { return NameOf(test.param); });

}  // namespace
}  // namespace trainyard::engine::cuda
