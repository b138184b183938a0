// Lets the provisioner meet every fault of the model, seed after seed.
#include <gtest/gtest.h>

#include "tests/unit/server/provision/simulate.h"

namespace trainyard::provision {
namespace {

constexpr uint64_t kSeeds = 50;

TEST(ProvisionSimulation, EverySeedKeepsAllPromises) {
  Verdict sum;
  int64_t lost = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Verdict verdict = Simulate(seed);
    EXPECT_EQ(verdict.rule, "") << "seed " << seed << ", minute " << verdict.minute << ": "
                                << verdict.what;
    sum.crashes += verdict.crashes;
    sum.restores += verdict.restores;
    sum.adopted += verdict.adopted;
    sum.openings += verdict.openings;
    sum.pilots += verdict.pilots;
    sum.jobs += verdict.jobs;
    lost += verdict.lost;
  }
  // A simulation in which nothing goes wrong proves nothing.
  EXPECT_GT(sum.crashes, 500);
  EXPECT_GT(sum.restores, 50);
  EXPECT_GT(sum.adopted, 100);
  EXPECT_GT(lost, 100);
  EXPECT_GT(sum.openings, 50);
}

}  // namespace
}  // namespace trainyard::provision
