// Tests when replicas move, and when measured speeds are not worth a move.
#include "worker/trainer/run/hosting_watch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::trainer {
namespace {

using parallel::Hosting;
using ::testing::HasSubstr;

constexpr int64_t kFirstSteps = 11;  // two to warm up and eight measured, reported one step later

// Eight replicas of four rows on two ranks, at speeds in rows a second.
class HostingWatchTest : public ::testing::Test {
 protected:
  static HostingWatchOptions Options() {
    return {.replicas = 8,
            .rows = 4,
            .hosting = {{0, 4}, {4, 8}},
            .reason = "even",
            .measured_seconds = 0.1};
  }

  // Makes the ballots of this step, at these speeds in the one before.
  std::vector<Ballot> BallotsAt(const Hosting& hosting, double first, double second) const {
    std::vector<Ballot> ballots;
    for (size_t rank = 0; rank < hosting.size(); ++rank) {
      const int64_t rows = int64_t{4} * (hosting[rank].end - hosting[rank].begin);
      const double speed = rank == 0 ? first : second;
      ballots.push_back({.computed_step = step_ - 1,
                         .computed_rows = rows,
                         .compute_seconds = static_cast<double>(rows) / speed});
    }
    return ballots;
  }

  // Makes steps at these speeds, with a boundary after the last one. Returns the decision at the
  // end.
  std::optional<Hosting> Run(int64_t steps, double first, double second) {
    std::optional<Hosting> decided;
    for (int64_t i = 0; i < steps; ++i) {
      ++step_;
      if (step_ == 1) continue;  // nothing was computed before
      watch_.Add(BallotsAt(hosting_, first, second));
      const auto hosting = watch_.Decide(/*is_boundary=*/i + 1 == steps);
      if (hosting.has_value()) {
        decided = hosting;
        hosting_ = *hosting;
      }
    }
    return decided;
  }

  HostingWatch watch_{Options()};
  Hosting hosting_ = Options().hosting;
  int64_t step_ = 0;
};

TEST_F(HostingWatchTest, MovesReplicasToTheFasterRankAfterTheFirstMeasuredSteps) {
  EXPECT_EQ(Run(kFirstSteps - 1, 300, 100), std::nullopt);
  EXPECT_EQ(watch_.reason(), "even");
  EXPECT_EQ(Run(1, 300, 100), (Hosting{{0, 6}, {6, 8}}));
  EXPECT_EQ(watch_.reason(), "speeds of steps 3 to 10: rank 0 300/s, rank 1 100/s");
  const std::vector<run_dir::RankHosting> records = watch_.Records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].replicas, 6);
  EXPECT_EQ(records[1].first_replica, 6);
  EXPECT_NEAR(records[0].samples_per_s, 300, 1e-6);
}

TEST_F(HostingWatchTest, EqualSpeedsMoveNothing) {
  EXPECT_EQ(Run(200, 100, 101), std::nullopt);
  EXPECT_EQ(watch_.changes(), 0);
  EXPECT_THAT(watch_.reason(), HasSubstr("rank 0 100/s, rank 1 101/s"));
}

TEST_F(HostingWatchTest, DriftCountsAtABoundaryAlone) {
  Run(kFirstSteps, 300, 100);
  // Without a boundary nothing moves, whatever is measured.
  for (int i = 0; i < 200; ++i) {
    ++step_;
    watch_.Add(BallotsAt(hosting_, 100, 300));
    ASSERT_EQ(watch_.Decide(false), std::nullopt);
  }
  EXPECT_EQ(watch_.Decide(true), (Hosting{{0, 2}, {2, 8}}));
  EXPECT_EQ(watch_.changes(), 2);
}

TEST_F(HostingWatchTest, ASmallDriftSolvesNothingAnew) {
  Run(kFirstSteps, 300, 100);
  const std::string reason = watch_.reason();
  EXPECT_EQ(Run(100, 306, 101), std::nullopt);
  EXPECT_EQ(watch_.reason(), reason);
}

TEST_F(HostingWatchTest, BusyMomentsDoNotCount) {
  for (int i = 0; i < kFirstSteps; ++i) {
    ++step_;
    if (step_ == 1) continue;
    // Three of the steps take a hundred times as long on one rank.
    const bool is_busy = step_ % 4 == 0;
    watch_.Add(BallotsAt(hosting_, 100, is_busy ? 1 : 100));
    EXPECT_EQ(watch_.Decide(true), std::nullopt);
  }
  EXPECT_THAT(watch_.reason(), HasSubstr("rank 1 100/s"));
}

// A processor that is shared in slices: three steps at full speed, then one that waits for its
// turn.
TEST_F(HostingWatchTest, SlicesOfASharedDeviceCount) {
  for (int i = 0; i < kFirstSteps; ++i) {
    ++step_;
    if (step_ == 1) continue;
    watch_.Add(BallotsAt(hosting_, 100, step_ % 4 == 0 ? 100.0 / 7 : 100));
  }
  // In eight steps of 1 and 7, two are long, which makes 20 in the time of 8.
  EXPECT_TRUE(watch_.Decide(true).has_value());
  EXPECT_THAT(watch_.reason(), HasSubstr("rank 0 100/s, rank 1 40/s"));
}

TEST_F(HostingWatchTest, ShortStepsAreMeasuredForLonger) {
  // 64 steps of a millisecond do not reach a tenth of a second.
  EXPECT_EQ(Run(64, 48'000, 16'000), std::nullopt);
  EXPECT_EQ(watch_.reason(), "even");
  EXPECT_EQ(Run(64, 48'000, 16'000), (Hosting{{0, 6}, {6, 8}}));
}

TEST_F(HostingWatchTest, StepsThatLeaveARankWithoutRowsDoNotCount) {
  Run(kFirstSteps - 1, 300, 100);
  watch_.Add(std::vector<Ballot>{{.computed_rows = 4, .compute_seconds = 1}, {}});
  EXPECT_EQ(watch_.Decide(true), std::nullopt);
  EXPECT_EQ(watch_.reason(), "even");
}

TEST_F(HostingWatchTest, ARankWithoutMemoryGetsNoMore) {
  HostingWatchOptions options = Options();
  options.room = {5, 8};
  watch_ = HostingWatch(options);
  EXPECT_EQ(Run(kFirstSteps, 300, 100), std::nullopt);
  EXPECT_THAT(watch_.reason(), HasSubstr("rank 0 has no memory for 6 replicas"));
}

TEST_F(HostingWatchTest, OneReplicaARankCannotBeHostedOtherwise) {
  HostingWatchOptions options = Options();
  options.replicas = 2;
  options.hosting = hosting_ = {{0, 1}, {1, 2}};
  watch_ = HostingWatch(options);
  EXPECT_EQ(Run(kFirstSteps, 300, 100), std::nullopt);
  EXPECT_THAT(watch_.reason(), HasSubstr("2 replicas, one a rank, cannot be hosted otherwise"));
  EXPECT_NEAR(watch_.Records()[1].samples_per_s, 100, 1e-6);
}

}  // namespace
}  // namespace trainyard::trainer
