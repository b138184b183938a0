// Tests grid and random search, and the ways in which every sweep ends.
#include <cmath>

#include "tests/unit/server/core/sweeping/sweep_fixture.h"

namespace trainyard::core::sweeping {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RandomSearch, TrialsBeginInOrderAsPlacesBecomeFree) {
  for (const Search search : {Search::kGrid, Search::kRandom}) {
    Sweep sweep({.search = search, .trials = 4, .concurrent = 2});
    EXPECT_THAT(sweep.Run(), ElementsAre("start 0", "start 1"));
    EXPECT_THAT(sweep.Succeed(1, 0.5), ElementsAre("start 2"));
    EXPECT_THAT(sweep.Fail(0), ElementsAre("start 3"));
    EXPECT_THAT(sweep.Succeed(3, 0.6), IsEmpty());
    EXPECT_THAT(sweep.Succeed(2, 0.4), ElementsAre("succeeded: all trials have ended"));
    EXPECT_EQ(sweep.state().best(), 3);
  }
}

TEST(RandomSearch, ASweepWhoseTrialsAllFailHasFailed) {
  Sweep sweep({.trials = 2});
  EXPECT_THAT(sweep.Run(), ElementsAre("start 0"));
  EXPECT_THAT(sweep.Fail(0), ElementsAre("start 1"));
  EXPECT_THAT(sweep.Fail(1), ElementsAre("failed: no trial has told a value"));
}

TEST(RandomSearch, ATrialThatTellsNoNumberSucceedsButIsTheWorst) {
  Sweep sweep({.trials = 2});
  sweep.Run();
  EXPECT_THAT(sweep.Succeed(0, std::nan("")), ElementsAre("start 1"));
  EXPECT_EQ(sweep.trial_at(0).status, TrialStatus::kSucceeded);
  EXPECT_THAT(sweep.Succeed(1, -1e9), ElementsAre("succeeded: all trials have ended"));
  EXPECT_EQ(sweep.state().best(), 1);

  Sweep without({.trials = 1});
  without.Run();
  EXPECT_THAT(without.Succeed(0, std::nan("")), ElementsAre("failed: no trial has told a value"));
}

TEST(Ending, AValueAtTheTargetEndsTheSweep) {
  Sweep sweep({.trials = 9, .concurrent = 3, .target = 0.9});
  sweep.Run();
  EXPECT_THAT(sweep.Succeed(1, 0.89), ElementsAre("start 3"));
  EXPECT_THAT(sweep.Succeed(2, std::nan("")), ElementsAre("start 4"));
  EXPECT_THAT(sweep.Succeed(3, 0.9),
              ElementsAre("stop 0: trial 3 has reached the target of 0.9",
                          "stop 4: trial 3 has reached the target of 0.9",
                          "succeeded: trial 3 has reached the target of 0.9"));
}

TEST(Ending, TheTargetOfALossIsBelow) {
  Sweep sweep({.search = Search::kAsha,
               .maximize = false,
               .trials = 9,
               .concurrent = 1,
               .factor = 3,
               .rungs = 2,
               .target = 0.1});
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 0.2), ElementsAre("pause 0", "start 1"));
  EXPECT_THAT(sweep.Report(1, 0.05),
              ElementsAre("stop 0: trial 1 has reached the target of 0.1",
                          "stop 1: trial 1 has reached the target of 0.1",
                          "succeeded: trial 1 has reached the target of 0.1"))
      << "values on the way count";
}

TEST(Ending, PatienceEndsTheSweep) {
  Sweep sweep({.trials = 9, .concurrent = 2, .patience = 2});
  sweep.Run();
  EXPECT_THAT(sweep.Succeed(0, 0.5), ElementsAre("start 2"));
  EXPECT_THAT(sweep.Fail(1), ElementsAre("start 3")) << "it has told no value";
  EXPECT_THAT(sweep.Succeed(2, 0.4), ElementsAre("start 4"));
  EXPECT_THAT(sweep.Succeed(3, 0.6), ElementsAre("start 5"));
  EXPECT_THAT(sweep.Succeed(4, 0.6), ElementsAre("start 6")) << "it is no better";
  EXPECT_THAT(sweep.Succeed(5, std::nan("")),
              ElementsAre("stop 6: 2 trials in a row were no better than trial 3",
                          "succeeded: 2 trials in a row were no better than trial 3"));
}

TEST(Ending, TheBudgetEndsTheSweep) {
  const std::string text = "the trials have used the device time of the budget";
  Sweep sweep({.trials = 9, .concurrent = 2});
  sweep.Run();
  sweep.Succeed(0, 0.5);
  EXPECT_THAT(sweep.Ask(EntryKind::kBudgetUsed),
              ElementsAre("stop 1: " + text, "stop 2: " + text, "succeeded: " + text));
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kRetryRequested}));

  Sweep without({.trials = 9});
  without.Run();
  EXPECT_THAT(without.Ask(EntryKind::kBudgetUsed),
              ElementsAre("stop 0: " + text, "failed: " + text));
}

}  // namespace
}  // namespace trainyard::core::sweeping
