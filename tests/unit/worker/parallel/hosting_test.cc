// Compares hostings with all possible hostings, where these can be counted.
#include "worker/parallel/hosting.h"

#include <functional>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;

std::vector<int> Counts(const Hosting& hosting) {
  std::vector<int> counts;
  int next = 0;
  for (const ReplicaRange& range : hosting) {
    EXPECT_EQ(range.begin, next) << "no gap and no overlap";
    counts.push_back(range.end - range.begin);
    next = range.end;
  }
  return counts;
}

// The number of nodes of the tree in sum_tree.h that cover [begin, end), found by walking down from
// its root.
int Terms(int replicas, int begin, int end, int first, int size) {
  const int last = std::min(first + size, replicas);
  if (first >= last || end <= first || last <= begin) return 0;
  if (begin <= first && last <= end) return 1;
  return Terms(replicas, begin, end, first, size / 2) +
         Terms(replicas, begin, end, first + size / 2, size / 2);
}

int Terms(int replicas, const std::vector<int>& counts) {
  int terms = 0;
  int begin = 0;
  for (const int count : counts) {
    terms += Terms(replicas, begin, begin + count, 0, 1 << 10);
    begin += count;
  }
  return terms;
}

double Longest(const std::vector<int>& counts, const std::vector<double>& seconds) {
  double longest = 0;
  for (size_t i = 0; i < counts.size(); ++i) longest = std::max(longest, counts[i] * seconds[i]);
  return longest;
}

// Tries all hostings, beginning with those with more replicas on the first ranks, and keeps the
// first of the best.
std::vector<int> BruteForce(int replicas, const std::vector<double>& seconds) {
  std::vector<int> counts, best;
  double best_longest = std::numeric_limits<double>::infinity();
  int best_terms = 0;
  const std::function<void(int)> extend = [&](int left) {
    const int ranks_left = static_cast<int>(seconds.size() - counts.size());
    if (ranks_left == 0) {
      if (left > 0) return;
      const double longest = Longest(counts, seconds);
      const int terms = Terms(replicas, counts);
      if (longest < best_longest || (longest == best_longest && terms < best_terms)) {
        best = counts;
        best_longest = longest;
        best_terms = terms;
      }
      return;
    }
    for (int count = left - (ranks_left - 1); count >= 1; --count) {
      counts.push_back(count);
      extend(left - count);
      counts.pop_back();
    }
  };
  extend(replicas);
  return best;
}

TEST(Hosting, EqualsTheBestOfAllHostingsForRandomSpeeds) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> speed(0.1, 3);
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const int replicas = ranks + static_cast<int>(random() % 9);
    std::vector<double> seconds(static_cast<size_t>(ranks));
    for (double& each : seconds) each = speed(random);
    EXPECT_EQ(Counts(SolveHosting(replicas, seconds)), BruteForce(replicas, seconds))
        << replicas << " replicas, trial " << trial;
  }
}

TEST(Hosting, EqualsTheBestOfAllHostingsWhereManyAreEquallyGood) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const int replicas = ranks + static_cast<int>(random() % 12);
    std::vector<double> seconds(static_cast<size_t>(ranks));
    for (double& each : seconds) each = 1.0 + static_cast<double>(random() % 3);
    EXPECT_EQ(Counts(SolveHosting(replicas, seconds)), BruteForce(replicas, seconds))
        << replicas << " replicas, trial " << trial;
  }
}

TEST(Hosting, OfEqualSpeedsIsEven) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int replicas = ranks; replicas <= 40; ++replicas) {
      const std::vector<int> counts =
          Counts(SolveHosting(replicas, std::vector<double>(static_cast<size_t>(ranks), 0.25)));
      EXPECT_LE(*std::max_element(counts.begin(), counts.end()), (replicas + ranks - 1) / ranks);
    }
  }
  EXPECT_EQ(Counts(SolveHosting(8, std::vector<double>(4, 1.0))), std::vector<int>(4, 2));
}

TEST(Hosting, AFastRankGetsItsShare) {
  EXPECT_EQ(Counts(SolveHosting(8, {1.0, 3.0})), (std::vector<int>{6, 2}));
  EXPECT_EQ(Counts(SolveHosting(16, {3.0, 1.0, 1.0})), (std::vector<int>{2, 7, 7}));
}

TEST(Hosting, AVerySlowRankStillHostsOne) {
  // The slow rank sets the time of the step, and the others share the rest in as few terms as they
  // can.
  EXPECT_EQ(Counts(SolveHosting(8, {1.0, 1000.0})), (std::vector<int>{7, 1}));
  EXPECT_EQ(Counts(SolveHosting(9, {1.0, 1.0, 1000.0})).back(), 1);
  EXPECT_EQ(StepSeconds(SolveHosting(9, {1.0, 1.0, 1000.0}), {1.0, 1.0, 1000.0}), 1000.0);
}

TEST(Hosting, OfEquallyGoodOnesHasTheFewestTerms) {
  // (3, 2, 2) would take six terms, [0, 2) [2, 3) [3, 4) [4, 5) [5, 6) [6, 7).
  EXPECT_EQ(Counts(SolveHosting(7, {1.0, 1.0, 1.0})), (std::vector<int>{2, 2, 3}));
}

TEST(Hosting, OfThousandsOfReplicasIsFound) {
  std::vector<double> seconds(512, 1.0);
  seconds.back() = 1e6;
  const Hosting hosting = SolveHosting(4096, seconds);
  EXPECT_EQ(Counts(hosting).size(), 512U);
  EXPECT_EQ(hosting.back().end, 4096);
  EXPECT_EQ(StepSeconds(hosting, seconds), 1e6);
}

TEST(Hosting, EvenRefusesMoreRanksThanReplicas) {
  EXPECT_EQ(Counts(EvenHosting(8, 3).value()), (std::vector<int>{3, 3, 2}));
  const auto hosting = EvenHosting(2, 3);
  EXPECT_EQ(hosting.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(hosting.status().message()),
              HasSubstr("2 replicas cannot occupy 3 devices"));
}

}  // namespace
}  // namespace trainyard::parallel
