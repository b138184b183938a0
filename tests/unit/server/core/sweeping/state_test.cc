// Tests the fold: which entries are taken over, and what follows from them.
#include "server/core/sweeping/state.h"

#include <cmath>
#include <limits>

#include "tests/unit/server/core/sweeping/sweep_fixture.h"

namespace trainyard::core::sweeping {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Definition AshaOf(int32_t trials, int32_t concurrent) {
  return {
      .search = Search::kAsha, .trials = trials, .concurrent = concurrent, .factor = 2, .rungs = 2};
}

TEST(State, ASecondReportForARungChangesNothing) {
  Sweep sweep(AshaOf(4, 2));
  sweep.Run();
  const Entry report = sweep.Reported(0, 0.5);
  EXPECT_TRUE(sweep.Take(report));
  EXPECT_FALSE(sweep.Take(report));
  Entry other = report;
  other.value = 0.9;
  EXPECT_FALSE(sweep.Take(other));
  EXPECT_EQ(sweep.trial_at(0).last->value, 0.5);
}

TEST(State, ReportsOfOtherRungsThanTheTrialsOwnChangeNothing) {
  Sweep sweep(AshaOf(4, 2));
  sweep.Run();
  Entry report = sweep.Reported(0, 0.5);
  report.rung = 1;
  EXPECT_FALSE(sweep.Take(report)) << "it is the last rung, which is reported by success";
  report.rung = -1;
  EXPECT_FALSE(sweep.Take(report));
  Sweep random({.trials = 1});
  random.Run();
  EXPECT_FALSE(random.Take(random.Reported(0, 0.5)));
}

TEST(State, EntriesAboutTrialsThatHaveNotBegunOrHaveEndedChangeNothing) {
  Sweep sweep(AshaOf(2, 1));
  sweep.Run();
  for (const EntryKind kind :
       {EntryKind::kReported, EntryKind::kHeld, EntryKind::kSucceeded, EntryKind::kFailed,
        EntryKind::kRestarted, EntryKind::kContinued, EntryKind::kPaused, EntryKind::kTrialStopped,
        EntryKind::kExploited}) {
    EXPECT_FALSE(sweep.Take({.kind = kind, .trial = 1})) << static_cast<int>(kind);
    EXPECT_FALSE(sweep.Take({.kind = kind, .trial = -1})) << static_cast<int>(kind);
  }
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kFailed, .trial = 0}));
  for (const EntryKind kind :
       {EntryKind::kReported, EntryKind::kHeld, EntryKind::kSucceeded, EntryKind::kFailed,
        EntryKind::kRestarted, EntryKind::kContinued, EntryKind::kPaused, EntryKind::kTrialStopped,
        EntryKind::kExploited}) {
    EXPECT_FALSE(sweep.Take({.kind = kind, .trial = 0})) << static_cast<int>(kind);
  }
}

TEST(State, ASweepThatHasEndedTakesNothingButARetry) {
  Sweep sweep({.trials = 2, .concurrent = 2});
  sweep.Run();
  sweep.Succeed(0, 0.5);
  sweep.Fail(1);
  ASSERT_TRUE(sweep.state().has_ended());
  for (const EntryKind kind : {EntryKind::kBudgetUsed, EntryKind::kStopRequested,
                               EntryKind::kCancelRequested, EntryKind::kResumeRequested,
                               EntryKind::kStarted, EntryKind::kEnded, EntryKind::kReported}) {
    EXPECT_FALSE(sweep.Take({.kind = kind, .end = End::kFailed})) << static_cast<int>(kind);
  }
  EXPECT_EQ(sweep.state().end(), End::kSucceeded);
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kRetryRequested}));
  EXPECT_FALSE(sweep.state().has_ended());
}

TEST(State, NothingStartsWithoutAFreePlace) {
  Sweep sweep(AshaOf(3, 1));
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kStarted, .trial = 0}));
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kStarted, .trial = 1}));
  EXPECT_TRUE(sweep.Take(sweep.Reported(0, 1)));
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kPaused, .trial = 0}));
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kStarted, .trial = 2})) << "trials begin in order";
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kStarted, .trial = 0})) << "it has begun";
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kStarted, .trial = 1}));
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kContinued, .trial = 0, .rung = 1}));
}

TEST(State, ATrialGoesOnToTheNextRungOnly) {
  Sweep sweep({.search = Search::kAsha, .trials = 1, .factor = 2, .rungs = 3});
  sweep.Run();
  const auto continued = [&](int32_t rung) {
    return sweep.Take({.kind = EntryKind::kContinued, .trial = 0, .rung = rung});
  };
  EXPECT_FALSE(continued(0)) << "it is active";
  EXPECT_FALSE(continued(1)) << "it has not reported";
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kPaused, .trial = 0}));
  EXPECT_FALSE(continued(1));
  EXPECT_TRUE(continued(0)) << "it was interrupted";
  EXPECT_TRUE(sweep.Take(sweep.Reported(0, 1)));
  EXPECT_FALSE(continued(0));
  EXPECT_FALSE(continued(2));
  EXPECT_TRUE(continued(1));
  EXPECT_TRUE(sweep.Take(sweep.Reported(0, 1)));
  EXPECT_TRUE(continued(2));
  EXPECT_FALSE(continued(3));
}

TEST(State, HeldStepsBelongToThePause) {
  Sweep sweep(AshaOf(1, 1));
  sweep.Run();
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kHeld, .trial = 0, .step = 7})) << "it is active";
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kPaused, .trial = 0}));
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kHeld, .trial = 0, .step = 7}));
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kHeld, .trial = 0, .step = 8})) << "it came before";
  EXPECT_EQ(sweep.trial_at(0).held_step, 7);
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kContinued, .trial = 0, .rung = 0}));
  EXPECT_EQ(sweep.trial_at(0).held_step, std::nullopt);
}

TEST(State, APausedTrialMayStillReportAndSucceed) {
  Sweep sweep(AshaOf(2, 2));
  sweep.Run();
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kPaused, .trial = 0}));
  EXPECT_TRUE(sweep.Take(sweep.Reported(0, 0.5)));
  EXPECT_TRUE(sweep.trial_at(0).has_reported());
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kSucceeded, .trial = 0, .step = 99, .value = 0.7}));
  EXPECT_EQ(sweep.trial_at(0).status, TrialStatus::kSucceeded);
  EXPECT_EQ(sweep.trial_at(0).reports.at(0).value, 0.5);
  EXPECT_EQ(sweep.trial_at(0).reports.at(1).value, 0.7);
  EXPECT_EQ(sweep.trial_at(0).last->step, 99);
  EXPECT_EQ(sweep.state().active(), 1);
}

TEST(State, NanAndInfiniteValuesOnTheBadSideAreTheWorst) {
  const State up(Definition{.maximize = true});
  EXPECT_TRUE(up.IsBetter(2, 1));
  EXPECT_FALSE(up.IsBetter(1, 1));
  EXPECT_TRUE(up.IsBetter(-1e308, std::nan("")));
  EXPECT_TRUE(up.IsBetter(kInfinity, 1e308));
  EXPECT_FALSE(up.IsBetter(-kInfinity, std::nan("")));
  EXPECT_FALSE(up.IsBetter(std::nan(""), -kInfinity));
  const State down(Definition{.maximize = false});
  EXPECT_TRUE(down.IsBetter(1, 2));
  EXPECT_TRUE(down.IsBetter(1e308, kInfinity));
  EXPECT_FALSE(down.IsBetter(std::nan(""), kInfinity));
}

TEST(State, TheBestTrialIsTheFirstThatToldTheBestNewestValue) {
  Sweep sweep(AshaOf(4, 4));
  EXPECT_EQ(sweep.state().best(), -1);
  for (int32_t i = 0; i < 4; ++i) sweep.Take({.kind = EntryKind::kStarted, .trial = i});
  sweep.Take(sweep.Reported(2, std::nan("")));
  EXPECT_EQ(sweep.state().best(), -1);
  EXPECT_EQ(sweep.state().trials_since_best(), 0);
  sweep.Take(sweep.Reported(1, 0.5));
  EXPECT_EQ(sweep.state().best(), 1);
  sweep.Take(sweep.Reported(0, 0.5));
  EXPECT_EQ(sweep.state().best(), 1) << "it told it first";
  EXPECT_EQ(sweep.state().trials_since_best(), 1);
  sweep.Take(sweep.Reported(3, 0.4));
  EXPECT_EQ(sweep.state().trials_since_best(), 2);
  sweep.Take({.kind = EntryKind::kSucceeded, .trial = 2, .value = 0.1});
  EXPECT_EQ(sweep.state().trials_since_best(), 2) << "it is not its first value";
  sweep.Take({.kind = EntryKind::kSucceeded, .trial = 1, .value = 0.3});
  EXPECT_EQ(sweep.state().best(), 0) << "its newest value counts";
  EXPECT_EQ(sweep.state().trials_since_best(), 1);
  sweep.Take({.kind = EntryKind::kSucceeded, .trial = 0, .value = 0.6});
  EXPECT_EQ(sweep.state().best(), 0);
  EXPECT_EQ(sweep.state().trials_since_best(), 0);
  sweep.Take({.kind = EntryKind::kSucceeded, .trial = 3, .value = 0.6});
  EXPECT_EQ(sweep.state().best(), 0);
}

TEST(State, ARestartForgetsTheReportsAndTheBestAmongThem) {
  Sweep sweep(AshaOf(2, 2));
  sweep.Run();
  sweep.Take(sweep.Reported(0, 0.9));
  sweep.Take(sweep.Reported(1, 0.5));
  sweep.Take({.kind = EntryKind::kFailed, .trial = 0, .text = "lost"});
  EXPECT_EQ(sweep.state().best(), 0);
  EXPECT_EQ(sweep.trial_at(0).failure, "lost");
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kRestarted, .trial = 0})) << "nobody asked for it";
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kRetryRequested}));
  EXPECT_TRUE(sweep.state().is_retrying());
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kRetryRequested})) << "it is asked for already";
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kRestarted, .trial = 0}));
  EXPECT_FALSE(sweep.state().is_retrying());
  EXPECT_EQ(sweep.state().best(), 1);
  EXPECT_EQ(sweep.trial_at(0).generation, 1);
  EXPECT_EQ(sweep.trial_at(0).failures, 1);
  EXPECT_EQ(sweep.trial_at(0).failure, "");
  EXPECT_FALSE(sweep.trial_at(0).has_reported());
}

TEST(State, ASweepDoesNotEndBeforeItsTrials) {
  Sweep sweep({.trials = 1});
  sweep.Run();
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kEnded, .end = End::kSucceeded}));
  sweep.Take({.kind = EntryKind::kTrialStopped, .trial = 0});
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kEnded, .end = End::kNone}));
  EXPECT_TRUE(sweep.Take({.kind = EntryKind::kEnded, .end = End::kSucceeded, .text = "done"}));
  EXPECT_EQ(sweep.state().end_text(), "done");
}

TEST(State, RequestsThatWouldChangeNothingAreRefused) {
  Sweep sweep({.trials = 1});
  sweep.Run();
  const auto takes = [&](EntryKind kind) { return sweep.Take({.kind = kind}); };
  EXPECT_FALSE(takes(EntryKind::kResumeRequested));
  EXPECT_FALSE(takes(EntryKind::kRetryRequested)) << "nothing has failed";
  EXPECT_TRUE(takes(EntryKind::kStopRequested));
  EXPECT_FALSE(takes(EntryKind::kStopRequested));
  EXPECT_TRUE(takes(EntryKind::kResumeRequested));
  EXPECT_TRUE(takes(EntryKind::kBudgetUsed));
  EXPECT_FALSE(takes(EntryKind::kBudgetUsed));
  EXPECT_TRUE(takes(EntryKind::kStopRequested));
  EXPECT_TRUE(takes(EntryKind::kCancelRequested));
  EXPECT_FALSE(sweep.state().is_stopping());
  EXPECT_FALSE(takes(EntryKind::kCancelRequested));
  EXPECT_FALSE(takes(EntryKind::kStopRequested));
  EXPECT_FALSE(takes(EntryKind::kResumeRequested));
}

}  // namespace
}  // namespace trainyard::core::sweeping
