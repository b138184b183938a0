// Tests limits and periods of silence that follow from how long steps take.
#include "worker/trainer/run/step_pace.h"

#include "gtest/gtest.h"

namespace trainyard::trainer {
namespace {

StepPace Steady(absl::Duration step, int steps = 40) {
  StepPace pace;
  for (int i = 0; i < steps; ++i) pace.Add(step);
  return pace;
}

TEST(StepPace, FirstStepsMayTakeTheirTime) {
  StepPace pace;
  EXPECT_EQ(pace.CollectiveLimit(), StepPace::kFirstLimit);
  pace.Add(absl::Milliseconds(1));
  pace.Add(absl::Milliseconds(1));
  EXPECT_EQ(pace.CollectiveLimit(), StepPace::kFirstLimit);
  pace.Add(absl::Milliseconds(1));
  EXPECT_EQ(pace.CollectiveLimit(), absl::Seconds(10));
}

TEST(StepPace, LimitsFollowTheMedianWithinTheirBounds) {
  EXPECT_EQ(Steady(absl::Milliseconds(10)).CollectiveLimit(), absl::Seconds(10));
  EXPECT_EQ(Steady(absl::Milliseconds(700)).CollectiveLimit(), absl::Seconds(14));
  EXPECT_EQ(Steady(absl::Seconds(3)).CollectiveLimit(), absl::Seconds(20));
  EXPECT_EQ(Steady(absl::Seconds(60)).CollectiveLimit(), absl::Seconds(300));
}

TEST(StepPace, AnOutlierDoesNotMoveTheMedianAndANewPaceDoes) {
  StepPace pace = Steady(absl::Milliseconds(100));
  pace.Add(absl::Minutes(5));
  EXPECT_EQ(pace.median(), absl::Milliseconds(100));
  for (int i = 0; i < 16; ++i) pace.Add(absl::Seconds(2));
  EXPECT_EQ(pace.median(), absl::Seconds(2));
}

// A rank that waits in a collective has reported nothing since the step before. It must not count
// as stuck before its own limit has passed and it could report for whom it waited.
TEST(StepPace, TheSilenceOutlastsAWaitInTheStepAfterARecord) {
  for (const double seconds : {0.001, 0.3, 1.0, 4.0, 100.0}) {
    const StepPace pace = Steady(absl::Seconds(seconds));
    for (const absl::Duration limit : {pace.CollectiveLimit(), pace.LimitAfterCheckpoint()}) {
      // A record may be a second old when the step begins.
      EXPECT_GE(pace.Silence(limit), limit + pace.median() + absl::Seconds(2));
    }
  }
}

TEST(StepPace, AStuckRankIsKnownWithinHalfAMinuteWithStepsOfAFewSeconds) {
  constexpr absl::Duration kMarginOfTheSupervisor = absl::Seconds(3);
  for (const double seconds : {0.001, 0.3, 1.0, 2.0, 4.0}) {
    const StepPace pace = Steady(absl::Seconds(seconds));
    EXPECT_LE(pace.Silence(pace.CollectiveLimit()) + kMarginOfTheSupervisor, absl::Seconds(30));
  }
  const StepPace fast = Steady(absl::Milliseconds(50));
  EXPECT_LE(fast.Silence(fast.LimitAfterCheckpoint()) + kMarginOfTheSupervisor, absl::Seconds(30));
}

}  // namespace
}  // namespace trainyard::trainer
