// Compares the chosen cuts with all possible ones.
#include "worker/parallel/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace trainyard::parallel {
namespace {

using ::testing::ElementsAre;

// Tries every choice. Returns infinity if none fits.
double BestOfAll(const PartitionProblem& problem, size_t stage, int begin) {
  const int segments = static_cast<int>(problem.segment_seconds.size());
  const bool is_last = stage + 1 == problem.speeds.size();
  double best = std::numeric_limits<double>::infinity();
  for (int end = is_last ? segments : begin + 1; begin < end && end <= segments; ++end) {
    if (problem.fits && !problem.fits(static_cast<int>(stage), begin, end)) continue;
    double mine = 0;
    for (int i = begin; i < end; ++i) mine += problem.segment_seconds[static_cast<size_t>(i)];
    mine /= problem.speeds[stage];
    const double rest = is_last ? 0 : BestOfAll(problem, stage + 1, end);
    best = std::min(best, std::max(mine, rest));
  }
  return best;
}

TEST(Partitions, AreAsGoodAsTheBestOfAllChoices) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    PartitionProblem problem;
    const size_t segments = 1 + random() % 9;
    const size_t stages = 1 + random() % 4;
    std::vector<int> bytes;
    for (size_t i = 0; i < segments; ++i) {
      problem.segment_seconds.push_back(static_cast<double>(random() % 20));
      bytes.push_back(static_cast<int>(random() % 10));
    }
    for (size_t i = 0; i < stages; ++i) {
      problem.speeds.push_back(1 + static_cast<double>(random() % 3));
    }
    if (round % 2 == 0) {
      const int limit = 5 + static_cast<int>(random() % 20);
      problem.fits = [bytes, limit](int, int begin, int end) {
        int sum = 0;
        for (int i = begin; i < end; ++i) sum += bytes[static_cast<size_t>(i)];
        return sum <= limit;
      };
    }
    const double best = BestOfAll(problem, 0, 0);
    const auto found = SolvePartition(problem);
    ASSERT_EQ(found.has_value(), best != std::numeric_limits<double>::infinity()) << round;
    if (!found.has_value()) continue;
    EXPECT_NEAR(found->slowest_seconds, best, 1e-9) << round;
    EXPECT_EQ(found->first_segments.size(), stages - 1);
  }
}

TEST(Partitions, GiveAFastDeviceMore) {
  const PartitionProblem problem = {.segment_seconds = {1, 1, 1, 1}, .speeds = {3, 1}};
  const auto found = SolvePartition(problem);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->first_segments, ElementsAre(3));
  EXPECT_DOUBLE_EQ(found->slowest_seconds, 1);
}

TEST(Partitions, KeepToTheMemoryOfADevice) {
  PartitionProblem problem = {.segment_seconds = {1, 1, 1, 9}, .speeds = {1, 1}};
  EXPECT_THAT(SolvePartition(problem)->first_segments, ElementsAre(3));
  problem.fits = [](int stage, int begin, int end) { return stage == 1 || end - begin <= 2; };
  EXPECT_THAT(SolvePartition(problem)->first_segments, ElementsAre(2));
  problem.fits = [](int, int, int) { return false; };
  EXPECT_FALSE(SolvePartition(problem).has_value());
}

TEST(Partitions, NeedASegmentForEachStage) {
  EXPECT_FALSE(SolvePartition({.segment_seconds = {1, 1}, .speeds = {1, 1, 1}}).has_value());
  EXPECT_TRUE(SolvePartition({.segment_seconds = {1, 1}, .speeds = {1, 1}}).has_value());
}

}  // namespace
}  // namespace trainyard::parallel
