// Tests what a sweep chooses that leaves something open, and the specs of its trials.
#include "server/sweeps/plan.h"

#include <gtest/gtest.h>

namespace trainyard::sweeps {
namespace {

v1::SweepSpec Searching(v1::SweepSearch search, const std::string& values, int trials) {
  v1::SweepSpec sweep;
  (*sweep.mutable_parameters())["optimizer.sgd.lr"] = values;
  sweep.set_maximize("test.accuracy");
  sweep.set_search(search);
  sweep.set_trials(trials);
  sweep.set_factor(4);
  sweep.set_quantile(0.25);
  return sweep;
}

TEST(Plan, ChoosesWhatIsLeftOpen) {
  v1::SweepSpec asha = Searching(v1::SWEEP_SEARCH_ASHA, "log(1e-4, 1)", 64);
  ChooseOpen(/*room=*/3, asha);
  EXPECT_EQ(asha.rungs(), 4);
  EXPECT_EQ(asha.concurrent(), 3);
  v1::SweepSpec grid = Searching(v1::SWEEP_SEARCH_GRID, "[1, 2, 3]", 0);
  ChooseOpen(/*room=*/0, grid);
  EXPECT_EQ(grid.trials(), 3);
  EXPECT_EQ(grid.concurrent(), 1) << "it begins although the pool has no room yet";
  v1::SweepSpec random = Searching(v1::SWEEP_SEARCH_RANDOM, "[1, 2, 3]", 10);
  ChooseOpen(/*room=*/8, random);
  EXPECT_EQ(random.trials(), 3) << "further trials would repeat these";
  EXPECT_EQ(random.concurrent(), 3);
  EXPECT_EQ(random.rungs(), 1);
  v1::SweepSpec given = Searching(v1::SWEEP_SEARCH_ASHA, "log(1e-4, 1)", 64);
  given.set_rungs(2);
  given.set_concurrent(7);
  ChooseOpen(/*room=*/3, given);
  EXPECT_EQ(given.rungs(), 2);
  EXPECT_EQ(given.concurrent(), 7);
}

TEST(Plan, ATrialIsTheSpecWithItsValues) {
  v1::JobSpec spec;
  spec.set_name(std::string(63, 'n'));
  spec.mutable_optimizer()->mutable_sgd()->set_lr(1);
  *spec.mutable_sweep() = Searching(v1::SWEEP_SEARCH_GRID, "[0.25, 0.5]", 2);
  const sweep::Values values = ValuesOf(spec.sweep(), SpaceOf(spec.sweep()), 1);
  const auto trial = SpecOfTrial(spec, 1, values);
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_FALSE(trial->has_sweep());
  EXPECT_EQ(trial->optimizer().sgd().lr(), 0.5);
  EXPECT_EQ(trial->name(), std::string(61, 'n') + "-1") << "names have 63 bytes at most";
  EXPECT_FALSE(SpecOfTrial(spec, 1, {{"optimizer.sgd.lr", "\"fast\""}}).ok());
}

}  // namespace
}  // namespace trainyard::sweeps
