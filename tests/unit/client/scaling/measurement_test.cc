// Tests measurements from series of metrics, also from disturbed ones.
#include "client/scaling/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace trainyard::scaling {
namespace {

using ::testing::HasSubstr;

// `steps` steps of `seconds` each, after a warm-up that takes ten times as long.
Series Steady(int64_t steps, double seconds) {
  Series series;
  double time = 1000;
  for (int64_t step = 1; step <= steps; ++step) {
    time += step <= WarmUpSteps(steps) ? 10 * seconds : seconds;
    series["train.loss"].push_back({step, 1.0 / static_cast<double>(step), time});
    series["comm.bytes"].push_back({step, step <= 3 ? 1e9 : 400.0, time});
  }
  return series;
}

TEST(WarmUp, IsAFifthWithinLimits) {
  EXPECT_EQ(WarmUpSteps(10), 3);
  EXPECT_EQ(WarmUpSteps(100), 20);
  EXPECT_EQ(WarmUpSteps(10'000), 50);
}

TEST(MedianOf, TakesTheMiddle) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
}

TEST(Measured, TimesAreMediansAfterTheWarmUp) {
  Series series = Steady(50, 0.02);
  // One step takes longer, because something disturbed it.
  for (size_t i = 30; i < 50; ++i) series["train.loss"][i].seconds += 5;
  const auto measured = Measure(2, 50, series);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_NEAR(measured->step_seconds, 0.02, 1e-9);
  EXPECT_EQ(measured->comm_bytes, 400);
  EXPECT_EQ(measured->compute_seconds, 0);
  double last = 0;
  for (int step = 41; step <= 50; ++step) last += 0.1 / step;
  EXPECT_NEAR(measured->final_loss, last, 1e-12);
}

TEST(Measured, TheLineIsAsFastAsWhereNobodyWasWaitedFor) {
  Series series = Steady(50, 0.02);
  for (int64_t step = 1; step <= 50; ++step) {
    series["comm.bytes"][static_cast<size_t>(step - 1)].value = 400;
    const bool is_waiting = step % 5 != 0;
    series["comm.seconds"].push_back({step, is_waiting ? 0.015 : 0.001, 0});
  }
  const auto measured = Measure(2, 50, series);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_NEAR(measured->link_bytes_per_s, 400 / 0.001, 1e-6);
  EXPECT_EQ(measured->comm_seconds, 0.015);
}

TEST(Measured, StepsOfUnequalTimesAreSpread) {
  Series series = Steady(50, 0.02);
  EXPECT_NEAR(Measure(2, 50, series)->step_spread, 0, 1e-9);
  // Every second step takes twice as long.
  double seconds = 0;
  for (Sample& sample : series["train.loss"]) {
    seconds += sample.step % 2 == 0 ? 0.04 : 0.02;
    sample.seconds = seconds;
  }
  const Measurement measured = *Measure(2, 50, series);
  EXPECT_NEAR(measured.step_spread, 0.02 / measured.step_seconds, 1e-9);
}

TEST(Measured, TooFewStepsAreRefused) {
  const auto measured = Measure(2, 4, Steady(4, 0.02));
  EXPECT_THAT(std::string(measured.status().message()), HasSubstr("use more steps"));
  EXPECT_FALSE(Measure(2, 100, {}).ok());
}

TEST(Measured, OfSeveralRunsTheMedianCounts) {
  Measurement run;
  run.devices = 2;
  std::vector<Measurement> runs;
  for (const double seconds : {0.03, 0.01, 0.02}) {
    run.step_seconds = seconds;
    run.jobs = {"jobs/" + std::to_string(runs.size() + 1)};
    runs.push_back(run);
  }
  const Measurement combined = Combine(runs);
  EXPECT_EQ(combined.step_seconds, 0.02);
  EXPECT_EQ(combined.jobs.size(), 3U);
  EXPECT_EQ(combined.step_seconds_of_runs, (std::vector<double>{0.03, 0.01, 0.02}));
}

TEST(Agreement, BitwiseMeansTheSameBytes) {
  Measurement a;
  a.weights = "xxh3-128:1";
  Measurement b = a;
  EXPECT_TRUE(Agree(a, b, true, 0));
  b.weights = "xxh3-128:2";
  EXPECT_FALSE(Agree(a, b, true, 0));
  EXPECT_FALSE(Agree({}, {}, true, 0)) << "no weights are no proof";
}

TEST(Agreement, OtherwiseLossesAreNearEachOther) {
  Measurement a;
  a.final_loss = 2.0;
  Measurement b;
  b.final_loss = 2.05;
  EXPECT_TRUE(Agree(a, b, false, 0.03));
  EXPECT_FALSE(Agree(a, b, false, 0.02));
  b.final_loss = std::nan("");
  EXPECT_FALSE(Agree(a, b, false, 0.03));
}

}  // namespace
}  // namespace trainyard::scaling
