// Tests the distance that CheckpointPace chooses against the time that every distance would lose.
#include "worker/checkpoint/checkpoint_pace.h"

#include <gtest/gtest.h>

namespace trainyard::checkpoint {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

// Returns the part of the time that is lost at a distance: the waits, and, at each failure, half of
// the distance on average.
double Lost(absl::Duration distance, absl::Duration cost, absl::Duration to_failure) {
  return absl::FDivDuration(cost, distance) + absl::FDivDuration(distance / 2, to_failure);
}

TEST(CheckpointPace, NoOtherDistanceLosesLess) {
  const absl::Duration cost = 2 * kSecond;
  CheckpointPace pace(/*failures=*/5, absl::Hours(18), cost);
  pace.Add(cost, kSecond);
  const absl::Duration to_failure = absl::Hours(6 + 18 + 6) / 6;
  const absl::Duration chosen = pace.Distance(/*trained=*/absl::Hours(6));
  EXPECT_NEAR(absl::ToDoubleSeconds(chosen), 268.3, 0.1);
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    EXPECT_LT(Lost(chosen, cost, to_failure), Lost(chosen * factor, cost, to_failure)) << factor;
  }
}

TEST(CheckpointPace, FailuresShortenTheDistanceAndTimeWithoutThemLengthensIt) {
  const CheckpointPace fresh(0, absl::ZeroDuration(), kSecond);
  const CheckpointPace failing(4, absl::Hours(1), kSecond);
  EXPECT_LT(failing.Distance(absl::ZeroDuration()), fresh.Distance(absl::ZeroDuration()));
  EXPECT_GT(fresh.Distance(absl::Hours(24)), fresh.Distance(absl::ZeroDuration()));
}

TEST(CheckpointPace, TheFirstMeasureReplacesTheGuessAndLaterOnesMoveIt) {
  CheckpointPace pace(0, absl::ZeroDuration(), absl::Hours(1));
  pace.Add(4 * kSecond, kSecond);
  EXPECT_EQ(pace.cost(), 4 * kSecond);
  pace.Add(2 * kSecond, kSecond);
  EXPECT_EQ(pace.cost(), 3 * kSecond);
}

TEST(CheckpointPace, NeitherServerNorWriterIsKeptBusy) {
  CheckpointPace pace(1'000'000, absl::ZeroDuration(), absl::ZeroDuration());
  EXPECT_EQ(pace.Distance(absl::ZeroDuration()), CheckpointPace::kDistanceMin);
  pace.Add(absl::ZeroDuration(), absl::Minutes(1));
  EXPECT_EQ(pace.Distance(absl::ZeroDuration()), absl::Minutes(4));
}

TEST(CheckpointPace, AnEvaluationIsAGoodMomentUnlessItCostsTooMuch) {
  CheckpointPace pace(0, absl::ZeroDuration(), absl::Milliseconds(10));
  const absl::Duration trained = absl::Minutes(1);
  EXPECT_FALSE(pace.IsDue(absl::Milliseconds(999), trained, /*is_evaluated=*/true));
  EXPECT_TRUE(pace.IsDue(absl::Milliseconds(1000), trained, /*is_evaluated=*/true));
  EXPECT_FALSE(pace.IsDue(absl::Milliseconds(1000), trained, /*is_evaluated=*/false));
  EXPECT_TRUE(pace.IsDue(pace.Distance(trained), trained, /*is_evaluated=*/false));
}

}  // namespace
}  // namespace trainyard::checkpoint
