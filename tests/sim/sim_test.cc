// Sweeps over seeds, the kept seeds, and the proof that the checkers see planted bugs. A seed that
// breaks a promise here tells its story with `sim --seed N --trace`.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/sim/bugs.h"
#include "tests/sim/simulation.h"
#include "tests/testing/paths.h"

namespace trainyard::sim {
namespace {

// Ten parts, for as many processors as there are. Together at least 2,000 pool-hours: virtual time
// of one pool each, counted once though every seed runs twice.
constexpr int kParts = 10;
constexpr uint64_t kSeedsOfPart = 100;
constexpr double kHoursOfPart = 200;

class Sweep : public ::testing::TestWithParam<int> {};

TEST_P(Sweep, NoSeedBreaksAPromise) {
  double hours = 0;
  const uint64_t first = static_cast<uint64_t>(GetParam()) * kSeedsOfPart + 1;
  uint64_t seed = first;
  for (; seed < first + kSeedsOfPart; ++seed) {
    const Result result = SimulateTwice(seed);
    hours += static_cast<double>(result.hours_us) / 3.6e9;
    EXPECT_FALSE(result.is_broken) << "seed " << seed << ": " << result.rule << ": " << result.what;
  }
  EXPECT_GE(hours, kHoursOfPart);
  std::printf("seeds %d..%d: %.0f pool-hours\n", static_cast<int>(first),
              static_cast<int>(seed - 1), hours);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Sweep, ::testing::Range(0, kParts));

std::vector<std::string> BugNames() {
  std::vector<std::string> names;
  for (const Bug& bug : Bugs()) names.push_back(bug.name);
  return names;
}

class Planted : public ::testing::TestWithParam<std::string> {};

TEST_P(Planted, IsCaught) {
  const Catch caught = CatchBug(GetParam());
  EXPECT_NE(caught.seed, 0u) << "none of " << kBugSeeds << " seeds sees " << GetParam();
  std::printf("%-26s | %-40s | %d seeds\n", GetParam().c_str(), caught.rule.c_str(),
              static_cast<int>(caught.seed));
}

INSTANTIATE_TEST_SUITE_P(Bugs, Planted, ::testing::ValuesIn(BugNames()),
                         [](const auto& tested) { return tested.param; });

// A line of seeds.txt: seed, the bug with which it breaks ("-": none), a sentence.
struct Kept {
  uint64_t seed = 0;
  std::string bug;
  std::string sentence;
};

std::vector<Kept> KeptSeeds() {
  std::vector<Kept> kept;
  std::ifstream file(testing::SourcePath("tests/sim/seeds.txt"));
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    Kept one;
    if (words.size() == 3 && absl::SimpleAtoi(words[0], &one.seed)) {
      one.bug = words[1] == "-" ? "" : words[1];
      one.sentence = words[2];
      kept.push_back(one);
    } else {
      ADD_FAILURE() << "seeds.txt: '" << line << "' is not: seed, bug or -, sentence";
    }
  }
  return kept;
}

TEST(KeptSeeds, HoldAndStillMeetWhatTheyWereKeptFor) {
  const std::vector<Kept> all = KeptSeeds();
  EXPECT_GE(all.size(), 10u);
  for (const Kept& kept : all) {
    const Result result = Simulate(kept.seed);
    EXPECT_FALSE(result.is_broken) << "seed " << kept.seed << " (" << kept.sentence
                                   << "): " << result.rule << ": " << result.what;
    if (kept.bug.empty()) continue;
    EXPECT_TRUE(Simulate(kept.seed, kept.bug).is_broken)
        << "seed " << kept.seed << " no longer meets " << kept.bug << ": " << kept.sentence;
  }
}

TEST(Simulation, OneSeedTellsOneStory) {
  EXPECT_EQ(Simulate(7).hash, Simulate(7).hash);
  EXPECT_NE(Simulate(7).hash, Simulate(8).hash);
}

}  // namespace
}  // namespace trainyard::sim
