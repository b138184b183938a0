// Tests population based training by generations.
#include <cmath>

#include "tests/unit/server/core/sweeping/sweep_fixture.h"

namespace trainyard::core::sweeping {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Definition Pbt(int32_t trials, int32_t concurrent, int32_t rungs) {
  return {.search = Search::kPbt, .trials = trials, .concurrent = concurrent, .rungs = rungs};
}

// Lets the trials report and hold, one after the other, as far as they are active. Returns the
// decisions after the last one.
std::vector<std::string> Generation(Sweep& sweep, const std::map<int32_t, double>& values,
                                    int64_t step) {
  for (const auto& [trial, value] : values) sweep.Report(trial, value);
  std::vector<std::string> decisions;
  for (const auto& [trial, value] : values) decisions = sweep.Hold(trial, step + trial);
  return decisions;
}

TEST(Pbt, TheWorstCopyTheBestAndAllTrainOn) {
  Sweep sweep(Pbt(4, 4, 3));
  EXPECT_THAT(sweep.Run(), ElementsAre("start 0", "start 1", "start 2", "start 3"));
  EXPECT_THAT(sweep.Report(1, 0.9), ElementsAre("pause 1"));
  EXPECT_THAT(sweep.Report(2, 0.1), ElementsAre("pause 2"));
  EXPECT_THAT(sweep.Hold(1, 101), IsEmpty());
  EXPECT_THAT(sweep.Hold(2, 102), IsEmpty());
  EXPECT_THAT(sweep.Report(0, 0.5), ElementsAre("pause 0"));
  EXPECT_THAT(sweep.Report(3, 0.6), ElementsAre("pause 3"));
  EXPECT_THAT(sweep.Hold(3, 103), IsEmpty());
  EXPECT_THAT(sweep.Hold(0, 100), ElementsAre("exploit 2 from 1 at 101 to 1", "continue 0 to 1",
                                              "continue 1 to 1", "continue 3 to 1"));
  EXPECT_EQ(sweep.trial_at(2).generation, 1);
  EXPECT_EQ(sweep.trial_at(2).copied_from, 1);
  EXPECT_EQ(sweep.trial_at(2).reports.size(), 1u) << "its reports stay";
  EXPECT_THAT(Generation(sweep, {{0, 0.1}, {1, 0.2}, {2, 0.3}, {3, 0.4}}, 200),
              ElementsAre("exploit 0 from 3 at 203 to 2", "continue 1 to 2", "continue 2 to 2",
                          "continue 3 to 2"));
  EXPECT_THAT(sweep.Succeed(0, 0.5), IsEmpty());
  EXPECT_THAT(sweep.Succeed(1, 0.6), IsEmpty());
  EXPECT_THAT(sweep.Fail(2), IsEmpty());
  EXPECT_THAT(sweep.Succeed(3, 0.55), ElementsAre("succeeded: all trials have ended"));
  EXPECT_EQ(sweep.state().best(), 1);
}

TEST(Pbt, TheWorstTakesTheBestAndSoOnInTurns) {
  Definition definition = Pbt(8, 8, 2);
  definition.quantile = 0.3;  // of 8: 2
  Sweep sweep(definition);
  sweep.Run();
  EXPECT_THAT(
      Generation(sweep, {{0, 1}, {1, 8}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 2}, {7, 7}}, 10),
      ElementsAre("exploit 0 from 1 at 11 to 1", "exploit 6 from 7 at 17 to 1", "continue 1 to 1",
                  "continue 2 to 1", "continue 3 to 1", "continue 4 to 1", "continue 5 to 1",
                  "continue 7 to 1"));
}

TEST(Pbt, FewPlacesAreTakenInTurnsAndCopiesComeFirst) {
  Definition definition = Pbt(6, 1, 2);
  definition.quantile = 0.4;  // of 6: 2
  Sweep sweep(definition);
  EXPECT_THAT(sweep.Run(), ElementsAre("start 0"));
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_THAT(sweep.Report(i, i),
                ElementsAre(absl::StrCat("pause ", i), absl::StrCat("start ", i + 1)));
    EXPECT_THAT(sweep.Hold(i, 10 + i), IsEmpty());
  }
  EXPECT_THAT(sweep.Report(5, 5), ElementsAre("pause 5"));
  EXPECT_THAT(sweep.Hold(5, 15), ElementsAre("exploit 0 from 5 at 15 to 1"));
  EXPECT_THAT(sweep.Succeed(0, 7), ElementsAre("exploit 1 from 4 at 14 to 1"))
      << "donors have not trained on";
  EXPECT_THAT(sweep.Succeed(1, 7), ElementsAre("continue 2 to 1"));
  EXPECT_THAT(sweep.Succeed(2, 7), ElementsAre("continue 3 to 1"));
  EXPECT_THAT(sweep.Succeed(3, 7), ElementsAre("continue 4 to 1"));
  EXPECT_THAT(sweep.Succeed(4, 7), ElementsAre("continue 5 to 1"));
  EXPECT_THAT(sweep.Succeed(5, 7), ElementsAre("succeeded: all trials have ended"));
}

TEST(Pbt, LaterReportsDoNotChangeWhoCopiesWhom) {
  Definition definition = Pbt(6, 2, 3);
  definition.quantile = 0.5;
  Sweep sweep(definition);
  sweep.Run();
  for (int32_t i = 0; i < 6; ++i) {
    sweep.Report(i, i);
    sweep.Hold(i, 10 + i);
  }
  EXPECT_EQ(sweep.trial_at(0).copied_from, 5);
  EXPECT_EQ(sweep.trial_at(1).copied_from, 4);
  EXPECT_THAT(sweep.Report(0, 99), ElementsAre("pause 0", "exploit 2 from 3 at 13 to 1"));
}

TEST(Pbt, ADonorNeedsACheckpointAndANumber) {
  Sweep sweep(Pbt(4, 4, 2));
  sweep.Run();
  for (int32_t i = 0; i < 4; ++i) sweep.Report(i, i == 2 ? std::nan("") : i);
  for (int32_t i = 1; i < 4; ++i) sweep.Hold(i, i == 3 ? 0 : 10 + i);
  EXPECT_THAT(sweep.Hold(0, 10), ElementsAre("exploit 2 from 1 at 11 to 1", "continue 0 to 1",
                                             "continue 1 to 1", "continue 3 to 1"));
}

TEST(Pbt, WithoutADonorAllTrainOn) {
  Sweep sweep(Pbt(4, 4, 2));
  sweep.Run();
  for (int32_t i = 0; i < 4; ++i) sweep.Report(i, i);
  for (int32_t i = 0; i < 3; ++i) sweep.Hold(i, 0);
  EXPECT_THAT(sweep.Hold(3, 0), ElementsAre("continue 0 to 1", "continue 1 to 1", "continue 2 to 1",
                                            "continue 3 to 1"));
}

TEST(Pbt, AFewTrialsAreNotReplaced) {
  Sweep sweep(Pbt(3, 3, 2));
  sweep.Run();
  EXPECT_THAT(Generation(sweep, {{0, 1}, {1, 2}, {2, 3}}, 10),
              ElementsAre("continue 0 to 1", "continue 1 to 1", "continue 2 to 1"));
}

TEST(Pbt, FailedTrialsAreReplaced) {
  Sweep sweep(Pbt(4, 4, 2));
  sweep.Run();
  EXPECT_THAT(sweep.Fail(3), IsEmpty());
  EXPECT_THAT(sweep.Fail(0), IsEmpty());
  EXPECT_THAT(Generation(sweep, {{1, 1}, {2, 2}}, 10),
              ElementsAre("exploit 0 from 2 at 12 to 1", "exploit 3 from 2 at 12 to 1",
                          "continue 1 to 1", "continue 2 to 1"))
      << "two are more than the quantile, and both are replaced";
  EXPECT_EQ(sweep.trial_at(0).failure, "");
}

TEST(Pbt, ATrialThatFailsWhileItIsHeldLetsTheOthersGoOn) {
  Sweep sweep(Pbt(3, 3, 2));
  sweep.Run();
  for (int32_t i = 0; i < 3; ++i) sweep.Report(i, i);
  sweep.Hold(0, 10);
  sweep.Hold(1, 11);
  EXPECT_THAT(sweep.Fail(2),
              ElementsAre("exploit 2 from 1 at 11 to 1", "continue 0 to 1", "continue 1 to 1"));
}

TEST(Pbt, ADonorThatFailsIsNotCopied) {
  Sweep sweep(Pbt(4, 1, 2));
  sweep.Run();
  for (int32_t i = 0; i < 4; ++i) sweep.Report(i, i);
  sweep.Take({.kind = EntryKind::kStopRequested});
  for (int32_t i = 0; i < 4; ++i) sweep.Hold(i, 10 + i);
  EXPECT_EQ(sweep.state().copies().size(), 1u);
  sweep.Fail(3);
  EXPECT_THAT(sweep.Ask(EntryKind::kResumeRequested), ElementsAre("continue 0 to 1"));
}

TEST(Pbt, ASweepWhoseTrialsAllFailEnds) {
  Sweep sweep(Pbt(2, 2, 2));
  sweep.Run();
  sweep.Report(0, 1);
  EXPECT_THAT(sweep.Fail(1), IsEmpty());
  EXPECT_THAT(sweep.Fail(0), ElementsAre("succeeded: all trials have ended"))
      << "one has told a value";
}

TEST(Pbt, AStoppedSweepGoesOnWhereItWas) {
  Sweep sweep(Pbt(4, 2, 2));
  sweep.Run();
  sweep.Report(0, 1);
  sweep.Hold(0, 10);
  EXPECT_THAT(sweep.Ask(EntryKind::kStopRequested), ElementsAre("pause 1", "pause 2"));
  sweep.Hold(1, 5);
  sweep.Hold(2, 5);
  EXPECT_THAT(sweep.Ask(EntryKind::kResumeRequested),
              ElementsAre("continue 1 to 0", "continue 2 to 0"));
  EXPECT_THAT(sweep.Report(1, 2), ElementsAre("pause 1", "start 3"));
}

TEST(Pbt, ARestartedTrialCatchesUpWhileTheOthersWait) {
  Sweep sweep(Pbt(3, 3, 4));
  sweep.Run();
  Generation(sweep, {{0, 1}, {1, 2}, {2, 3}}, 10);
  sweep.Fail(0);
  EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), ElementsAre("restart 0"));
  EXPECT_THAT(Generation(sweep, {{1, 2}, {2, 3}}, 20), IsEmpty());
  EXPECT_THAT(sweep.Report(0, 1), ElementsAre("pause 0", "continue 0 to 1"));
  EXPECT_THAT(sweep.Report(0, 1), ElementsAre("pause 0"));
  EXPECT_THAT(sweep.Hold(0, 20),
              ElementsAre("continue 0 to 2", "continue 1 to 2", "continue 2 to 2"));
}

TEST(Pbt, OneRungTrainsAllToTheEnd) {
  Sweep sweep(Pbt(2, 1, 1));
  EXPECT_THAT(sweep.Run(), ElementsAre("start 0"));
  EXPECT_THAT(sweep.Succeed(0, 1), ElementsAre("start 1"));
  EXPECT_THAT(sweep.Succeed(1, 1), ElementsAre("succeeded: all trials have ended"));
}

}  // namespace
}  // namespace trainyard::core::sweeping
