// Proves that the checkers see planted bugs: each patch of bugs/ breaks a promise within the first
// seeds, and each kept seed still meets the bug that it was kept for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/sim/bugs.h"
#include "tests/sim/kept_seeds.h"
#include "tests/sim/simulation.h"

namespace trainyard::sim {
namespace {

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

TEST(KeptSeeds, StillMeetTheBugThatTheyWereKeptFor) {
  const std::vector<std::string> names = BugNames();
  for (const KeptSeed& kept : KeptSeeds()) {
    if (kept.bug.empty()) continue;
    EXPECT_EQ(std::count(names.begin(), names.end(), kept.bug), 1) << "no bug " << kept.bug;
    EXPECT_TRUE(Simulate(kept.seed, kept.bug).is_broken)
        << "seed " << kept.seed << " no longer meets " << kept.bug << ": " << kept.sentence;
  }
}

// The patched copy differs from the shipped code only by its bugs.
TEST(KeptSeeds, HoldWhereNoBugIsAtWork) {
  for (const KeptSeed& kept : KeptSeeds()) {
    if (kept.bug.empty()) continue;
    const Result result = Simulate(kept.seed);
    EXPECT_FALSE(result.is_broken)
        << "seed " << kept.seed << ": " << result.rule << ": " << result.what;
  }
}

}  // namespace
}  // namespace trainyard::sim
