// Tests metrics of computing and communication, on a clock that is moved by hand.
#include "worker/trainer/run/step_meter.h"

#include <map>

#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"
#include "worker/run_dir/metrics.h"

namespace trainyard::trainer {
namespace {

class StepMeterTest : public ::testing::Test {
 protected:
  // The points of a name, by step.
  std::map<int64_t, double> Points(const std::string& name) {
    TY_CHECK_OK(reporter_.Flush());
    std::map<int64_t, double> points;
    const std::string text = ReadFile(dir_.MetricsPath(0)).value();
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const auto point = run_dir::DecodeMetricLine(line, "metrics.jsonl");
      if (point->name == name) points[point->step] = point->value;
    }
    return points;
  }
  // Adds a step that takes `time`, half of which is computation and half communication, a quarter
  // of which is hidden.
  void Step(int64_t step, absl::Duration time, const std::vector<Ballot>& ballots = {}) {
    clock_.Advance(time);
    parallel::CommStats stats;
    stats.total = time / 2;
    stats.exposed = 3 * time / 8;
    stats.bytes_sent = 1000;
    meter_.Add(step, clock_.Uptime(), time / 2, stats, ballots);
  }

  testing::TempDir folder_;
  run_dir::RunDir dir_{folder_.path()};
  testing::ManualClock clock_;
  Reporter reporter_ = Reporter::Open(dir_, 0, {}, clock_).value();
  StepMeter meter_{reporter_};
};

TEST_F(StepMeterTest, EveryLongStepHasItsOwnPoint) {
  for (int64_t step = 1; step <= 3; ++step) Step(step, absl::Milliseconds(800));
  EXPECT_EQ(Points("compute.seconds"), (std::map<int64_t, double>{{1, 0.4}, {2, 0.4}, {3, 0.4}}));
  EXPECT_EQ(Points("comm.seconds").at(2), 0.4);
  EXPECT_NEAR(Points("comm.exposed_seconds").at(2), 0.3, 1e-9);
  EXPECT_NEAR(Points("comm.hidden_fraction").at(2), 0.25, 1e-9);
  EXPECT_EQ(Points("comm.bytes").at(2), 1000);
}

TEST_F(StepMeterTest, ShortStepsShareThePointsOfATenthOfASecond) {
  Step(1, absl::Milliseconds(4));
  for (int64_t step = 2; step <= 101; ++step) Step(step, absl::Milliseconds(step % 2 == 0 ? 2 : 6));
  const auto points = Points("compute.seconds");
  EXPECT_EQ(points.size(), 4U);  // the first step, and three that a tenth of a second passed before
  EXPECT_NEAR(points.rbegin()->second, 0.002, 2e-4);
  EXPECT_EQ(Points("comm.bytes").rbegin()->second, 1000);
}

TEST_F(StepMeterTest, TheTimesOfOtherRanksAreToldNowAndThen) {
  const std::vector<Ballot> ballots = {
      {.computed_rows = 8, .compute_seconds = 1}, {.computed_rows = 8, .compute_seconds = 2.5}, {}};
  for (int64_t step = 1; step <= 12; ++step) Step(step, absl::Seconds(1), ballots);
  EXPECT_EQ(Points("compute.seconds.rank1"),
            (std::map<int64_t, double>{{1, 2.5}, {6, 2.5}, {11, 2.5}}));
  EXPECT_TRUE(Points("compute.seconds.rank2").empty()) << "it computed nothing";
  EXPECT_TRUE(Points("compute.seconds.rank0").empty());
}

}  // namespace
}  // namespace trainyard::trainer
