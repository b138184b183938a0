// Tests asynchronous successive halving step by step.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <random>

#include "tests/unit/server/core/sweeping/sweep_fixture.h"

namespace trainyard::core::sweeping {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Definition Asha(int32_t trials, int32_t concurrent, int32_t factor, int32_t rungs) {
  return {.search = Search::kAsha,
          .trials = trials,
          .concurrent = concurrent,
          .factor = factor,
          .rungs = rungs};
}

// Lets trials run one after the other, the longest active one first. Returns all decisions.
std::vector<std::string> RunWith(Sweep& sweep, const std::vector<double>& values) {
  std::vector<std::string> all = sweep.Run();
  std::deque<int32_t> active;
  const auto note = [&](const std::vector<std::string>& decisions) {
    for (const std::string& text : decisions) {
      if (text.rfind("start", 0) == 0) active.push_back(std::stoi(text.substr(6)));
      if (text.rfind("continue", 0) == 0) active.push_back(std::stoi(text.substr(9)));
    }
  };
  note(all);
  while (!active.empty()) {
    const int32_t trial = active.front();
    active.pop_front();
    const double value = values[static_cast<size_t>(trial)];
    const bool is_last = sweep.trial_at(trial).rung == RungCount(sweep.state().definition()) - 1;
    const auto decisions = is_last ? sweep.Succeed(trial, value) : sweep.Report(trial, value);
    note(decisions);
    all.insert(all.end(), decisions.begin(), decisions.end());
  }
  return all;
}

// Returns the number of trials that have come as far as each rung.
std::vector<int> CountsByRung(const State& state) {
  std::vector<int> counts(static_cast<size_t>(RungCount(state.definition())), 0);
  for (const Trial& trial : state.trials()) {
    for (int32_t rung = 0; rung <= trial.rung; ++rung) ++counts[static_cast<size_t>(rung)];
  }
  return counts;
}

// The table of the paper: bracket 0 with 9 trials and a factor of 3 trains 9, 3 and 1.
TEST(Asha, TheTableOfThePaperOneAfterTheOther) {
  Sweep sweep(Asha(9, 1, 3, 3));
  const std::vector<std::string> decisions = RunWith(sweep, {9, 1, 2, 8, 3, 4, 7, 5, 6});
  EXPECT_THAT(decisions,
              ElementsAre("start 0", "pause 0", "start 1", "pause 1", "start 2", "pause 2",
                          "continue 0 to 1", "pause 0", "start 3", "pause 3", "start 4", "pause 4",
                          "start 5", "pause 5", "continue 3 to 1", "pause 3", "start 6", "pause 6",
                          "start 7", "pause 7", "start 8", "pause 8", "continue 6 to 1", "pause 6",
                          "continue 0 to 2", "stop 1: others were better",
                          "stop 2: others were better", "stop 3: others were better",
                          "stop 4: others were better", "stop 5: others were better",
                          "stop 6: others were better", "stop 7: others were better",
                          "stop 8: others were better", "succeeded: all trials have ended"));
  EXPECT_THAT(CountsByRung(sweep.state()), ElementsAre(9, 3, 1));
  EXPECT_EQ(sweep.state().best(), 0);
}

TEST(Asha, TheTableOfThePaperWithSeveralPlaces) {
  for (const int32_t places : {2, 3, 5, 9}) {
    Sweep sweep(Asha(9, places, 3, 3));
    RunWith(sweep, {9, 1, 2, 8, 3, 4, 7, 5, 6});
    EXPECT_THAT(CountsByRung(sweep.state()), ElementsAre(9, 3, 1)) << places;
    EXPECT_EQ(sweep.state().end(), End::kSucceeded);
  }
}

// Each trial is the best when it reports, so nearly all of them are promoted.
TEST(Asha, PromotionsMayTurnOutWrong) {
  Sweep sweep(Asha(9, 1, 3, 3));
  RunWith(sweep, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(CountsByRung(sweep.state()), ElementsAre(9, 7, 5));
  EXPECT_EQ(sweep.state().best(), 8);
}

TEST(Asha, ATrialThatIsAmongTheBestWhenItReportsGoesOnWithoutAPause) {
  Sweep sweep(Asha(9, 3, 3, 3));
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 1), ElementsAre("pause 0", "start 3"));
  EXPECT_THAT(sweep.Report(1, 2), ElementsAre("pause 1", "start 4"));
  EXPECT_THAT(sweep.Report(2, 3), ElementsAre("continue 2 to 1"));
}

TEST(Asha, TheHighestRungIsPromotedFirst) {
  Sweep sweep(Asha(20, 3, 2, 3));
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 5), ElementsAre("pause 0", "start 3"));
  EXPECT_THAT(sweep.Report(1, 6), ElementsAre("continue 1 to 1"));
  EXPECT_THAT(sweep.Report(2, 5.5), ElementsAre("pause 2", "start 4"));
  EXPECT_THAT(sweep.Report(1, 6), ElementsAre("pause 1", "start 5"));
  EXPECT_THAT(sweep.Report(3, 8), ElementsAre("continue 3 to 1"));
  sweep.Take(sweep.Reported(3, 3));
  sweep.Take({.kind = EntryKind::kFailed, .trial = 4});
  EXPECT_THAT(sweep.Fail(5),
              ElementsAre("pause 3", "continue 1 to 2", "continue 2 to 1", "start 6"));
}

TEST(Asha, EqualValuesAreRankedByTheirTrials) {
  Sweep sweep(Asha(9, 2, 2, 2));
  sweep.Run();
  EXPECT_THAT(sweep.Report(1, 5), ElementsAre("pause 1", "start 2"));
  EXPECT_THAT(sweep.Report(0, 5), ElementsAre("continue 0 to 1"));
}

TEST(Asha, AFailedTrialIsTheWorstOfItsRung) {
  Sweep sweep(Asha(9, 1, 3, 2));
  sweep.Run();
  EXPECT_THAT(sweep.Fail(0), ElementsAre("start 1"));
  EXPECT_THAT(sweep.Fail(1), ElementsAre("start 2"));
  EXPECT_THAT(sweep.Report(2, -5), ElementsAre("continue 2 to 1")) << "it is the best of 3";
}

TEST(Asha, APausedTrialThatFailsIsNotPromoted) {
  Sweep sweep(Asha(9, 1, 2, 2));
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 5), ElementsAre("pause 0", "start 1"));
  EXPECT_THAT(sweep.Fail(0), IsEmpty());
  EXPECT_THAT(sweep.Report(1, 1), ElementsAre("continue 1 to 1"))
      << "it is better than trial 0 now";
}

TEST(Asha, ATrialWithoutANumberIsNeverPromoted) {
  Sweep sweep(Asha(3, 1, 2, 2));
  sweep.Run();
  sweep.Report(0, std::nan(""));
  sweep.Report(1, -std::numeric_limits<double>::infinity());
  EXPECT_THAT(sweep.Report(2, std::nan("")),
              ElementsAre("pause 2", "stop 0: others were better", "stop 1: others were better",
                          "stop 2: others were better", "failed: no trial has told a value"));
}

TEST(Asha, TrialsThatCannotWaitAreStoppedUnlessTheyAreAmongTheBest) {
  Sweep sweep(Asha(9, 1, 3, 3));
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 5, false), ElementsAre("continue 0 to 1")) << "the first goes on";
  EXPECT_THAT(sweep.Report(0, 5, false), ElementsAre("continue 0 to 2"));
  EXPECT_THAT(sweep.Succeed(0, 5), ElementsAre("start 1"));
  EXPECT_THAT(sweep.Report(1, 4, false), ElementsAre("stop 1: others were better", "start 2"));
  EXPECT_THAT(sweep.Report(2, 3, true), ElementsAre("pause 2", "start 3"))
      << "this one has a checkpoint";
  EXPECT_THAT(sweep.Report(3, std::nan(""), false),
              ElementsAre("stop 3: others were better", "start 4"));
}

TEST(Asha, WithoutPausesTrialsAreStoppedThatCouldWait) {
  Definition definition = Asha(9, 1, 3, 2);
  definition.pause = false;
  Sweep sweep(definition);
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 5), ElementsAre("continue 0 to 1"));
  EXPECT_THAT(sweep.Succeed(0, 5), ElementsAre("start 1"));
  EXPECT_THAT(sweep.Report(1, 4), ElementsAre("stop 1: others were better", "start 2"));
  definition.pause = true;
  Sweep pausing(definition);
  pausing.Run();
  EXPECT_THAT(pausing.Report(0, 5, false), ElementsAre("pause 0", "start 1"));
}

TEST(Asha, TheBestTrialIsTrainedToTheEndIfNoneIsPromoted) {
  Sweep sweep(Asha(3, 1, 4, 3));
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 5), ElementsAre("pause 0", "start 1"));
  EXPECT_THAT(sweep.Report(1, 6), ElementsAre("pause 1", "start 2"));
  EXPECT_THAT(sweep.Report(2, 4), ElementsAre("pause 2", "continue 1 to 1"));
  EXPECT_THAT(sweep.Report(1, 1), ElementsAre("continue 1 to 2")) << "a pause would be in vain";
  EXPECT_THAT(sweep.Succeed(1, 7),
              ElementsAre("stop 0: others were better", "stop 2: others were better",
                          "succeeded: all trials have ended"));
}

TEST(Asha, TheLastTrialGoesOnWithoutAPauseIfItIsTheBest) {
  Sweep sweep(Asha(2, 1, 4, 2));
  sweep.Run();
  EXPECT_THAT(sweep.Report(0, 5), ElementsAre("pause 0", "start 1"));
  EXPECT_THAT(sweep.Report(1, 6), ElementsAre("continue 1 to 1"));
}

TEST(Asha, AnotherFinalistFollowsOneThatFails) {
  Sweep sweep(Asha(2, 1, 4, 2));
  sweep.Run();
  sweep.Report(0, 5);
  sweep.Report(1, 6);
  EXPECT_THAT(sweep.Fail(1), ElementsAre("continue 0 to 1"));
  EXPECT_THAT(sweep.Fail(0), ElementsAre("succeeded: all trials have ended"));
  EXPECT_EQ(sweep.state().best(), 1);
}

TEST(Asha, ATrialThatRanPastItsRungsHasSucceeded) {
  Sweep sweep(Asha(2, 1, 4, 3));
  sweep.Run();
  sweep.Report(0, 5);
  EXPECT_THAT(sweep.Succeed(0, 6), IsEmpty()) << "it was paused";
  EXPECT_THAT(sweep.Report(1, 9), ElementsAre("pause 1", "stop 1: others were better",
                                              "succeeded: all trials have ended"));
}

TEST(Asha, OneRungIsARandomSearch) {
  Sweep sweep(Asha(2, 1, 4, 1));
  EXPECT_THAT(sweep.Run(), ElementsAre("start 0"));
  EXPECT_THAT(sweep.Succeed(0, 1), ElementsAre("start 1"));
  EXPECT_THAT(sweep.Succeed(1, 2), ElementsAre("succeeded: all trials have ended"));
}

TEST(Asha, AFailedTrialThatRunsAgainStartsAtTheLowestRung) {
  Sweep sweep(Asha(3, 1, 2, 3));
  sweep.Run();
  sweep.Report(0, 5);
  EXPECT_THAT(sweep.Report(1, 6), ElementsAre("continue 1 to 1"));
  EXPECT_THAT(sweep.Fail(1), ElementsAre("start 2"));
  sweep.Take({.kind = EntryKind::kRetryRequested});
  EXPECT_THAT(sweep.Report(2, 1), ElementsAre("pause 2", "restart 1"))
      << "a finalist is not chosen before all have had their chance";
  EXPECT_EQ(sweep.trial_at(1).rung, 0);
  EXPECT_THAT(sweep.Report(1, 9), ElementsAre("continue 1 to 1"));
}

}  // namespace
}  // namespace trainyard::core::sweeping
