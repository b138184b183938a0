// Tests the timeline of recorded steps, and what happens when it cannot be written.
#include "worker/trainer/run/trace.h"

#include <set>

#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::trainer {
namespace {

using nlohmann::json;

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() { TY_CHECK_OK(dir_.CreateRankDirectory(1)); }

  std::string Text() const { return ReadFile(dir_.TracePath(1)).value_or(""); }
  std::vector<json> Events() const {
    std::vector<json> events;
    for (const absl::string_view line : absl::StrSplit(Text(), '\n', absl::SkipEmpty())) {
      events.push_back(json::parse(line, nullptr, /*allow_exceptions=*/false));
      EXPECT_TRUE(events.back().is_object()) << line;
    }
    return events;
  }

  testing::TempDir folder_;
  run_dir::RunDir dir_{folder_.path()};
  testing::ManualClock clock_;
};

TEST_F(TraceTest, RecordsTheFirstStepsButOneAndThenOneInTwoHundredAndFiftySix) {
  Trace trace(dir_, 1, "cpu-1", 100, clock_);
  std::set<int64_t> recorded;
  for (int64_t step = 101; step <= 800; ++step) {
    trace.BeginStep(step);
    if (trace.is_on()) recorded.insert(step);
    trace.Add(Trace::Lane::kCompute, "work", absl::Seconds(1), absl::Seconds(2));
    trace.EndStep();
  }
  EXPECT_EQ(recorded, (std::set<int64_t>{102, 103, 104, 256, 512, 768}));
  std::set<int64_t> told;
  for (const json& event : Events()) {
    if (event["ph"] == "X") told.insert(event["args"]["step"].get<int64_t>());
  }
  EXPECT_EQ(told, recorded);
}

TEST_F(TraceTest, TellsNamesAndSpansInMicrosecondsOfTheWallClock) {
  Trace trace(dir_, 1, "cpu-1", 0, clock_);
  trace.BeginStep(2);
  ASSERT_TRUE(trace.is_on());
  const absl::Duration begin = clock_.Uptime();
  const int64_t begin_us = absl::ToUnixMicros(clock_.Now());
  {
    const Trace::Span span(trace, Trace::Lane::kCommunication, "reduce \"bucket\" 2");
    clock_.Advance(absl::Milliseconds(3));
  }
  trace.Add(Trace::Lane::kData, "wait for data", begin, begin + absl::Microseconds(7));
  trace.Add(Trace::Lane::kWait, "wait for bucket 0", begin, begin + absl::Microseconds(9));
  trace.EndStep();
  const std::vector<json> events = Events();
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[0]["args"]["name"], "rank 1 (cpu-1)");
  EXPECT_EQ(events[1]["args"]["name"], "compute");
  EXPECT_EQ(events[4]["name"], "reduce \"bucket\" 2");
  EXPECT_EQ(events[4]["ph"], "X");
  EXPECT_EQ(events[4]["ts"], begin_us);
  EXPECT_EQ(events[4]["dur"], 3000);
  EXPECT_EQ(events[4]["pid"], 1);
  EXPECT_EQ(events[4]["tid"], 1);
  EXPECT_EQ(events[4]["args"]["step"], 2);
  EXPECT_EQ(events[5]["tid"], 2);
  EXPECT_EQ(events[5]["dur"], 7);
  EXPECT_EQ(events[4]["cat"], "comm");
  EXPECT_EQ(events[6]["cat"], "wait");
  EXPECT_EQ(events[6]["tid"], 0);
}

TEST_F(TraceTest, TakesWhatIsKnownLaterOfARecordedStep) {
  Trace trace(dir_, 1, "cuda-1", 0, clock_);
  trace.AddLate(1, Trace::Lane::kCompute, "early", absl::Seconds(1), absl::Seconds(2));
  trace.BeginStep(4);
  trace.EndStep();
  trace.BeginStep(5);
  EXPECT_FALSE(trace.is_on());
  trace.AddLate(4, Trace::Lane::kCompute, "device", absl::Seconds(1), absl::Seconds(2));
  trace.AddLate(5, Trace::Lane::kCompute, "not recorded", absl::Seconds(1), absl::Seconds(2));
  trace.EndStep();
  std::vector<std::string> names;
  for (const json& event : Events()) {
    if (event["ph"] != "X") continue;
    names.push_back(event["name"].get<std::string>());
    EXPECT_EQ(event["args"]["step"], 4);
  }
  EXPECT_EQ(names, std::vector<std::string>{"device"});
}

TEST_F(TraceTest, OfNoRecordedStepThereIsNoFile) {
  Trace trace(dir_, 1, "cpu-1", 0, clock_);
  trace.BeginStep(1);
  EXPECT_FALSE(trace.is_on());
  trace.Add(Trace::Lane::kCompute, "work", absl::Seconds(1), absl::Seconds(2));
  trace.EndStep();
  EXPECT_FALSE(FileExists(dir_.TracePath(1)));
}

TEST_F(TraceTest, EndsBelowFourMebibytesAndLeavesWholeLines) {
  Trace trace(dir_, 1, "cpu-1", 0, clock_);
  const std::string name(1 << 10, 'n');
  for (int64_t step = 1; step <= 100; ++step) {
    trace.BeginStep(step * kTraceEvery);
    for (int i = 0; i < 100; ++i) {
      trace.Add(Trace::Lane::kCompute, name, absl::Seconds(1), absl::Seconds(2));
    }
    trace.EndStep();
  }
  trace.BeginStep(1000 * kTraceEvery);
  EXPECT_FALSE(trace.is_on());
  const std::string text = Text();
  EXPECT_LE(text.size(), static_cast<size_t>(kTraceFileMax));
  EXPECT_GT(text.size(), static_cast<size_t>(kTraceFileMax) * 9 / 10);
  EXPECT_EQ(text.back(), '\n');
}

TEST_F(TraceTest, WithoutAPlaceToWriteTheTrainingGoesOn) {
  Trace trace(run_dir::RunDir(folder_.File("nothing")), 1, "cpu-1", 0, clock_);
  trace.BeginStep(2);
  EXPECT_FALSE(trace.is_on());
  trace.EndStep();
}

}  // namespace
}  // namespace trainyard::trainer
