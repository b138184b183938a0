// Compares group_norm's kernels with plain loops in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "worker/engine/backend/cuda/kernels/norm.h"

namespace trainyard::engine::cuda {
namespace {

constexpr double kEps = 1e-3;

float Weight(int64_t c) {
  return 0.5F + 0.1F * static_cast<float>(c % 7);
}

struct Problem {
  GroupNormShape shape;

  int64_t group_channels() const { return shape.image.channels / shape.groups; }
  int64_t plane() const { return shape.image.height * shape.image.width; }
  double elements() const { return static_cast<double>(group_channels() * plane()); }
  // Returns the number, among all rows, of the group of a pixel and a channel.
  int64_t GroupAt(int64_t pixel, int64_t channel) const {
    return pixel / plane() * shape.groups + channel / group_channels();
  }
  // Calls body(pixel, channel) for all elements.
  template <class Body>
  void ForEach(const Body& body) const {
    for (int64_t p = 0; p < shape.image.pixels(); ++p) {
      for (int64_t c = 0; c < shape.image.channels; ++c) body(p, c);
    }
  }
};

// Means and inverses of all groups.
struct Statistics {
  std::vector<double> mean, inverse;
};

Statistics StatisticsOf(const Problem& problem, const TestView& x) {
  const auto count = static_cast<size_t>(problem.shape.image.rows * problem.shape.groups);
  Statistics of = {std::vector<double>(count), std::vector<double>(count)};
  const auto at = [&](int64_t p, int64_t c) { return static_cast<size_t>(problem.GroupAt(p, c)); };
  problem.ForEach([&](int64_t p, int64_t c) { of.mean[at(p, c)] += x.at(p, c); });
  for (double& mean : of.mean) mean /= problem.elements();
  problem.ForEach([&](int64_t p, int64_t c) {
    of.inverse[at(p, c)] += std::pow(x.at(p, c) - of.mean[at(p, c)], 2);
  });
  for (double& inverse : of.inverse) inverse = 1 / std::sqrt(inverse / problem.elements() + kEps);
  return of;
}

std::vector<Problem> Problems(int64_t channels) {
  std::vector<Problem> problems = {{{{2, channels, 3, 5}, 1}}, {{{3, channels, 1, 1}, channels}}};
  for (int64_t groups = 2; groups < channels; ++groups) {
    if (channels % groups == 0) {
      problems.push_back({{{2, channels, 4, 3}, groups}});
      break;
    }
  }
  return problems;
}

class GroupNormKernels : public ::testing::TestWithParam<Layout> {};

TEST_P(GroupNormKernels, NormaliseEachGroup) {
  const Layout& layout = GetParam();
  std::vector<float> weight, bias;
  for (int64_t c = 0; c < layout.channels; ++c) {
    weight.push_back(Weight(c));
    bias.push_back(0.25F * static_cast<float>(c % 3));
  }
  const DeviceArray<float> device_weight(weight), device_bias(bias);
  for (const Problem& problem : Problems(layout.channels)) {
    const TestView x = TestView::Random(layout, problem.shape.image.pixels(), 1, 2);
    TestView y(layout, problem.shape.image.pixels());
    const Statistics expected = StatisticsOf(problem, x);
    const DeviceArray<float> mean(std::vector<float>(expected.mean.size()));
    const DeviceArray<float> inverse(std::vector<float>(expected.mean.size()));
    GroupNormForward(problem.shape, x.view(), device_weight.data(), device_bias.data(),
                     static_cast<float>(kEps), y.view(), mean.data(), inverse.data(),
                     layout.clears_padding, nullptr);
    EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) {
      const auto group = static_cast<size_t>(problem.GroupAt(p, c));
      return (x.at(p, c) - expected.mean[group]) * expected.inverse[group] *
                 weight[static_cast<size_t>(c)] +
             bias[static_cast<size_t>(c)];
    }),
              "");
    for (size_t i = 0; i < expected.mean.size(); ++i) {
      EXPECT_NEAR(mean.Read()[i], expected.mean[i], 1e-5);
      EXPECT_NEAR(inverse.Read()[i], expected.inverse[i], 1e-4 * expected.inverse[i]);
    }
  }
}

TEST_P(GroupNormKernels, SendGradientsBack) {
  const Layout& layout = GetParam();
  const auto channels = static_cast<size_t>(layout.channels);
  std::vector<float> weight;
  for (int64_t c = 0; c < layout.channels; ++c) weight.push_back(Weight(c));
  const DeviceArray<float> device_weight(weight);
  for (const Problem& problem : Problems(layout.channels)) {
    for (const bool adds : {false, true}) {
      const TestView x = TestView::Random(layout, problem.shape.image.pixels(), 1, 2);
      const TestView dy = TestView::Random(layout, problem.shape.image.pixels(), 2);
      TestView dx(layout, problem.shape.image.pixels());
      const Statistics known = StatisticsOf(problem, x);
      std::vector<double> d(known.mean.size()), dh(known.mean.size());
      std::vector<double> dweight(channels, adds ? 3 : 0), dbias(channels, adds ? 3 : 0);
      const auto h = [&](int64_t p, int64_t c) {
        const auto group = static_cast<size_t>(problem.GroupAt(p, c));
        return (x.at(p, c) - known.mean[group]) * known.inverse[group];
      };
      problem.ForEach([&](int64_t p, int64_t c) {
        const auto group = static_cast<size_t>(problem.GroupAt(p, c));
        const auto at = static_cast<size_t>(c);
        d[group] += dy.at(p, c) * weight[at] / problem.elements();
        dh[group] += dy.at(p, c) * weight[at] * h(p, c) / problem.elements();
        dbias[at] += dy.at(p, c);
        dweight[at] += dy.at(p, c) * h(p, c);
      });
      const DeviceArray<float> mean(std::vector<float>(known.mean.begin(), known.mean.end()));
      const DeviceArray<float> inverse(
          std::vector<float>(known.inverse.begin(), known.inverse.end()));
      const DeviceArray<float> weight_sums(std::vector<float>(channels, 3));
      const DeviceArray<float> bias_sums(std::vector<float>(channels, 3));
      const DeviceArray<unsigned char> workspace(
          std::vector<unsigned char>(static_cast<size_t>(GroupNormWorkspace(problem.shape))));
      GroupNormBackward(problem.shape, dy.view(), x.view(), device_weight.data(), mean.data(),
                        inverse.data(), dx.view(), weight_sums.data(), bias_sums.data(), adds,
                        layout.clears_padding, workspace.data(), nullptr);
      EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) {
        const auto group = static_cast<size_t>(problem.GroupAt(p, c));
        return known.inverse[group] *
               (dy.at(p, c) * weight[static_cast<size_t>(c)] - d[group] - h(p, c) * dh[group]);
      }),
                "");
      for (size_t c = 0; c < channels; ++c) {
        EXPECT_NEAR(bias_sums.Read()[c], dbias[c], 1e-4);
        EXPECT_NEAR(weight_sums.Read()[c], dweight[c], 1e-4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, GroupNormKernels, ::testing::ValuesIn(Layouts()),
                         [](const auto& test) { return NameOf(test.param); });

}  // namespace
}  // namespace trainyard::engine::cuda
