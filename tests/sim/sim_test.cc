// Sweeps over seeds, and the kept seeds, through the code that ships. A seed that breaks a promise
// here tells its story with `sim --seed N --trace`.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "tests/sim/kept_seeds.h"
#include "tests/sim/simulation.h"

namespace trainyard::sim {
namespace {

// There are ten parts, for as many processors. Together they simulate at least 2,000 pool-hours:
// virtual time of one pool each. Every fourth seed runs twice, counts once, and must tell the same
// story; `sim --seeds` runs all of them twice.
constexpr int kParts = 10;
constexpr uint64_t kSeedsOfPart = 100;
constexpr double kHoursOfPart = 200;
constexpr uint64_t kTwiceEvery = 4;

class Sweep : public ::testing::TestWithParam<int> {};

TEST_P(Sweep, NoSeedBreaksAPromise) {
  double hours = 0;
  const uint64_t first = static_cast<uint64_t>(GetParam()) * kSeedsOfPart + 1;
  uint64_t seed = first;
  for (; seed < first + kSeedsOfPart; ++seed) {
    const Result result = seed % kTwiceEvery == 0 ? SimulateTwice(seed) : Simulate(seed);
    hours += static_cast<double>(result.hours_us) / 3.6e9;
    EXPECT_FALSE(result.is_broken) << "seed " << seed << ": " << result.rule << ": " << result.what;
  }
  EXPECT_GE(hours, kHoursOfPart);
  std::printf("seeds %d..%d: %.0f pool-hours\n", static_cast<int>(first),
              static_cast<int>(seed - 1), hours);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Sweep, ::testing::Range(0, kParts));

TEST(KeptSeeds, BreakNoPromise) {
  const std::vector<KeptSeed> all = KeptSeeds();
  EXPECT_GE(all.size(), 10u);
  for (const KeptSeed& kept : all) {
    const Result result = Simulate(kept.seed);
    EXPECT_FALSE(result.is_broken) << "seed " << kept.seed << " (" << kept.sentence
                                   << "): " << result.rule << ": " << result.what;
  }
}

// The job has three retries and fails twenty times. Each of its attempts makes progress.
TEST(Goodput, AJobThatFailsEveryThreeHoursTrainsUsefullyForNinetyNineHundredthsOfItsTime) {
  double useful = 0;
  int64_t attempts = 0;
  constexpr int kSeeds = 2;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Result result = SimulateLongJob(seed);
    EXPECT_FALSE(result.is_broken) << "seed " << seed << ": " << result.rule << ": " << result.what;
    useful += result.useful / kSeeds;
    attempts += result.attempts;
  }
  EXPECT_GE(useful, 0.99);
  EXPECT_GE(attempts, 15 * kSeeds);
  std::printf("useful time %.4f over %d attempts\n", useful, static_cast<int>(attempts));
}

TEST(Simulation, OneSeedTellsOneStory) {
  EXPECT_EQ(Simulate(7).hash, Simulate(7).hash);
  EXPECT_NE(Simulate(7).hash, Simulate(8).hash);
}

}  // namespace
}  // namespace trainyard::sim
