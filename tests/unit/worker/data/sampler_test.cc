// Tests that the sampler is a permutation for every size, and never changes.
#include "worker/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Order(int64_t size, uint64_t seed, int64_t epoch) {
  const Sampler sampler(size, seed, epoch);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(sampler.IndexAt(i));
  return order;
}

TEST(Sampler, IsAPermutationForEverySize) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= 300; ++size) sizes.push_back(size);
  for (const int64_t size : {1023, 1024, 1025, 4095, 4096, 4097, 50'000, 60'000, 65'536, 65'537}) {
    sizes.push_back(size);
  }
  for (const int64_t size : sizes) {
    std::vector<int64_t> order = Order(size, 1, 0);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i) << size;
  }
}

TEST(Sampler, HasTheOrderThatItAlwaysHad) {
  // These values are golden: a resumed job must continue with the samples that the first attempt
  // left.
  EXPECT_THAT(Order(10, 1, 0), ElementsAre(9, 5, 8, 0, 2, 3, 7, 6, 1, 4));
  const Sampler large(60'000, 42, 3);
  EXPECT_THAT((std::vector<int64_t>{large.IndexAt(0), large.IndexAt(1), large.IndexAt(59'999)}),
              ElementsAre(56'868, 47'465, 24'049));
}

TEST(Sampler, OrdersDifferBetweenSeedsAndBetweenEpochs) {
  const std::vector<int64_t> order = Order(1000, 1, 0);
  EXPECT_NE(order, Order(1000, 2, 0));
  EXPECT_NE(order, Order(1000, 1, 1));
  // With a seed that is higher by one, the order is not that of the next epoch.
  EXPECT_NE(Order(1000, 1, 1), Order(1000, 2, 0));
  EXPECT_EQ(order, Order(1000, 1, 0));
}

TEST(Sampler, EveryPositionReachesEveryIndexAboutEquallyOften) {
  // Over 10,000 epochs each of 100 (position, index) pairs of size 10 is expected 1,000 times; the
  // standard deviation is 30, so 180 is six of them.
  constexpr int kSize = 10;
  constexpr int kEpochs = 10'000;
  std::array<std::array<int, kSize>, kSize> counts{};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Sampler sampler(kSize, 7, epoch);
    for (int i = 0; i < kSize; ++i) {
      ++counts[static_cast<size_t>(i)][static_cast<size_t>(sampler.IndexAt(i))];
    }
  }
  for (const auto& row : counts) {
    for (const int count : row) EXPECT_NEAR(count, double{kEpochs} / kSize, 180);
  }
}

TEST(Sampler, NeighboursAreNotCorrelated) {
  // With 20,000 pairs, |r| above 0.04 is more than five standard deviations.
  constexpr int64_t kSize = 20'000;
  const std::vector<int64_t> order = Order(kSize, 3, 5);
  const double mean = (kSize - 1) / 2.0;
  double covariance = 0;
  double variance = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const double a = static_cast<double>(order[i]) - mean;
    const double b = static_cast<double>(order[(i + 1) % order.size()]) - mean;
    covariance += a * b;
    variance += a * a;
  }
  EXPECT_LT(std::abs(covariance / variance), 0.04);
}

TEST(Sampler, HandlesASizeNearTheLargest) {
  const int64_t size = int64_t{1} << 62;
  const Sampler sampler(size, 1, 0);
  EXPECT_GE(sampler.IndexAt(size - 1), 0);
  EXPECT_LT(sampler.IndexAt(size - 1), size);
  EXPECT_NE(sampler.IndexAt(0), sampler.IndexAt(1));
}

}  // namespace
}  // namespace trainyard::data
