// Proves that the simulation sees planted bugs: each patch of bugs/ breaks a promise within the
// first seeds.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/sim/bugs.h"
#include "tests/unit/server/provision/simulate.h"

namespace trainyard::provision {
namespace {

constexpr uint64_t kSeeds = 60;

std::vector<std::string> BugNames() {
  std::vector<std::string> names;
  for (const sim::Bug& bug : sim::Bugs()) names.push_back(bug.name);
  return names;
}

// Returns the first seed that breaks a promise, or 0.
uint64_t FirstBroken(const std::string& bug, Verdict& verdict) {
  sim::planted_bug = bug;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    verdict = Simulate(seed);
    if (!verdict.rule.empty()) return seed;
  }
  return 0;
}

class PlantedInProvisioner : public ::testing::TestWithParam<std::string> {};

TEST_P(PlantedInProvisioner, IsCaught) {
  Verdict verdict;
  const uint64_t seed = FirstBroken(GetParam(), verdict);
  EXPECT_NE(seed, 0u) << "none of " << kSeeds << " seeds sees " << GetParam();
  std::printf("%-26s | %-40s | seed %d: %s\n", GetParam().c_str(), verdict.rule.c_str(),
              static_cast<int>(seed), verdict.what.c_str());
}

INSTANTIATE_TEST_SUITE_P(Bugs, PlantedInProvisioner, ::testing::ValuesIn(BugNames()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace trainyard::provision
