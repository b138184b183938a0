// Tests the contents of metrics.jsonl and progress.json, and when a rank writes them.
#include "worker/trainer/run/reporter.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/full_disk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/temp_dir.h"
#include "worker/run_dir/metrics.h"

namespace trainyard::trainer {
namespace {

using ::testing::HasSubstr;

class ReporterTest : public ::testing::Test {
 protected:
  Reporter Open(int rank = 0) {
    auto reporter = Reporter::Open(dir_, rank, {}, clock_);
    EXPECT_TRUE(reporter.ok()) << reporter.status();
    return *std::move(reporter);
  }
  absl::Status Step(Reporter& reporter, int64_t step) {
    return reporter.StepDone({.step = step,
                              .rows = 64,
                              .loss = 2.5,
                              .accuracy = 0.1,
                              .lr = 0.1,
                              .data_wait = absl::ZeroDuration()});
  }
  std::string Metrics(int rank = 0) { return ReadFile(dir_.MetricsPath(rank)).value(); }
  run_dir::Progress Progress() { return run_dir::ReadProgress(dir_, 0).value(); }

  testing::TempDir folder_;
  run_dir::RunDir dir_{folder_.path()};
  testing::ManualClock clock_;
};

TEST_F(ReporterTest, StartsInStateStarting) {
  const Reporter reporter = Open();
  EXPECT_EQ(Progress().state, run_dir::Progress::State::kStarting);
  EXPECT_GT(Progress().rss_bytes, 0);
}

TEST_F(ReporterTest, TheFirstStepIsTold) {
  Reporter reporter = Open();
  ASSERT_TRUE(Step(reporter, 1).ok());
  EXPECT_EQ(Progress().state, run_dir::Progress::State::kRunning);
  EXPECT_EQ(Progress().step, 1);
  const std::vector<std::string> lines = absl::StrSplit(Metrics(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3U);
  const auto loss = run_dir::DecodeMetricLine(lines[0], "metrics.jsonl");
  ASSERT_TRUE(loss.ok());
  EXPECT_EQ(loss->name, "train.loss");
  EXPECT_EQ(loss->value, 2.5);
  EXPECT_EQ(loss->step, 1);
  EXPECT_EQ(loss->time_us, 1'800'000'100'000'000);
}

TEST_F(ReporterTest, MetricsWaitAtMost200Milliseconds) {
  Reporter reporter = Open();
  ASSERT_TRUE(Step(reporter, 1).ok());
  const std::string before = Metrics();
  clock_.SleepFor(absl::Milliseconds(150));
  ASSERT_TRUE(Step(reporter, 2).ok());
  EXPECT_EQ(Metrics(), before);
  clock_.SleepFor(absl::Milliseconds(50));
  ASSERT_TRUE(Step(reporter, 3).ok());
  EXPECT_THAT(Metrics(), HasSubstr("\"step\":2"));
  EXPECT_THAT(Metrics(), HasSubstr("\"step\":3"));
}

TEST_F(ReporterTest, SpeedIsToldOnceASecond) {
  Reporter reporter = Open();
  for (int64_t step = 1; step <= 11; ++step) {
    ASSERT_TRUE(Step(reporter, step).ok());
    if (step < 11) clock_.SleepFor(absl::Milliseconds(100));
  }
  EXPECT_THAT(Metrics(), HasSubstr("\"name\":\"samples_per_s\",\"value\":640,"));
  EXPECT_EQ(Progress().samples_per_s, 640);
  EXPECT_EQ(Progress().step, 11);
}

TEST_F(ReporterTest, TheLogSaysNowAndThenHowTheTrainingGoes) {
  Reporter reporter = Open();
  ::testing::internal::CaptureStdout();
  for (int64_t step = 1; step <= 200; ++step) {
    ASSERT_TRUE(Step(reporter, step).ok());
    clock_.SleepFor(absl::Seconds(1));
  }
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("trained step=6 epoch=1 loss=2.5 samples_per_s=64"));
  // After 5, 15, 35, 75 and 135 s, and then once a minute.
  EXPECT_THAT(log, HasSubstr("trained step=16 "));
  EXPECT_THAT(log, HasSubstr("trained step=196 "));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 6);
}

TEST_F(ReporterTest, OnlyRankZeroWritesMetrics) {
  Reporter reporter = Open(1);
  ASSERT_TRUE(Step(reporter, 1).ok());
  ASSERT_TRUE(reporter.Close().ok());
  EXPECT_EQ(Metrics(1), "");
  EXPECT_EQ(run_dir::ReadProgress(dir_, 1)->state, run_dir::Progress::State::kFinished);
}

TEST_F(ReporterTest, AHalfLineOfAKilledPredecessorIsCutOff) {
  ASSERT_TRUE(dir_.CreateRankDirectory(0).ok());
  const std::string whole = "{\"step\":1,\"name\":\"lr\",\"value\":1,\"time\":1}\n";
  ASSERT_TRUE(ReplaceFile(dir_.MetricsPath(0), whole + "{\"step\":2,\"na").ok());
  Reporter reporter = Open();
  EXPECT_EQ(Metrics(), whole);
  reporter.AddMetric(2, "lr", 1);
  ASSERT_TRUE(reporter.Close().ok());
  EXPECT_THAT(Metrics(), HasSubstr(whole + "{\"step\":2,\"name\":\"lr\""));
}

// Returns how long from now the rank may be silent.
TEST_F(ReporterTest, EveryRecordPromisesTheNextOne) {
  const auto promised = [this] {
    return absl::Microseconds(Progress().silent_until_boottime_us) - clock_.Uptime();
  };
  Reporter reporter = Open();
  EXPECT_EQ(promised(), absl::Minutes(30)) << "loading may take its time";
  ASSERT_TRUE(Step(reporter, 1).ok());
  EXPECT_EQ(promised(), absl::Minutes(2));
  reporter.set_running_silence(absl::Seconds(13));
  clock_.SleepFor(absl::Milliseconds(10));
  ASSERT_TRUE(Step(reporter, 2).ok());
  EXPECT_EQ(promised(), absl::Seconds(13)) << "a promise that is much shorter is made at once";
  reporter.set_running_silence(absl::Seconds(12));
  clock_.SleepFor(absl::Milliseconds(900));
  ASSERT_TRUE(Step(reporter, 3).ok());
  EXPECT_EQ(promised(), absl::Seconds(13) - absl::Milliseconds(900));
  clock_.SleepFor(absl::Milliseconds(100));
  ASSERT_TRUE(Step(reporter, 4).ok());
  EXPECT_EQ(promised(), absl::Seconds(12)) << "a second has passed";
  ASSERT_TRUE(reporter.Promise(absl::Seconds(40)).ok());
  EXPECT_EQ(promised(), absl::Seconds(40));
  ASSERT_TRUE(reporter.EnterState(run_dir::Progress::State::kEvaluating).ok());
  EXPECT_EQ(promised(), absl::Minutes(30));
  ASSERT_TRUE(reporter.Promise(absl::Seconds(20)).ok());
  ASSERT_TRUE(reporter.EnterState(run_dir::Progress::State::kEvaluating).ok());
  EXPECT_EQ(promised(), absl::Seconds(20)) << "a checkpoint that is done meanwhile changes nothing";
  ASSERT_TRUE(reporter.Close().ok());
  EXPECT_EQ(promised(), absl::Minutes(1));
}

TEST_F(ReporterTest, OnAFullDiskProgressGoesOnAndMetricsWait) {
  const testing::TempDir small;
  const auto mounted = testing::SmallDisk::Mount(small.path(), "size=1m");
  if (absl::IsUnavailable(mounted.status())) GTEST_SKIP() << mounted.status().message();
  ASSERT_TRUE(mounted.ok()) << mounted.status();
  const auto& disk = *mounted;
  const run_dir::RunDir dir(disk->path());
  ASSERT_TRUE(dir.CreateRankDirectory(0).ok());
  ASSERT_TRUE(MakeDirectories(dir.ControlDir()).ok());
  ASSERT_TRUE(run_dir::ReserveRecords(dir, {0}).ok());
  auto reporter = Reporter::Open(dir, 0, {}, clock_);
  ASSERT_TRUE(reporter.ok()) << reporter.status();
  ASSERT_TRUE(Step(*reporter, 1).ok());
  disk->FillSpace();
  const auto progress = [&] { return run_dir::ReadProgress(dir, 0).value(); };
  // The lines of a hundred steps exceed the rest of the last block of the file.
  int64_t step = 1;
  while (step < 100) {
    clock_.SleepFor(absl::Seconds(1));
    ASSERT_TRUE(Step(*reporter, ++step).ok());
    EXPECT_EQ(progress().step, step);
  }
  EXPECT_THAT(progress().disk_full, ::testing::StartsWith("metrics wait: cannot write: no space"));
  reporter->set_checkpoint_status(error::DiskFull("/checkpoints"));
  clock_.SleepFor(absl::Seconds(1));
  ASSERT_TRUE(Step(*reporter, ++step).ok());
  EXPECT_THAT(progress().disk_full, HasSubstr("no checkpoint can be written, metrics wait: "));
  EXPECT_EQ(ErrorReason(reporter->Close()), "DISK_FULL")
      << "a run must not end without its metrics";

  disk->Free();
  reporter->set_checkpoint_status(absl::OkStatus());
  ASSERT_TRUE(reporter->Close().ok());
  EXPECT_EQ(progress().disk_full, "");
  const std::string metrics = ReadFile(dir.MetricsPath(0)).value();
  const std::vector<std::string> lines = absl::StrSplit(metrics, '\n', absl::SkipEmpty());
  std::vector<int64_t> steps;
  for (const std::string& line : lines) {
    const auto point = run_dir::DecodeMetricLine(line, "metrics.jsonl");
    ASSERT_TRUE(point.ok()) << point.status();
    if (point->name == "train.loss") steps.push_back(point->step);
  }
  ASSERT_EQ(steps.size(), static_cast<size_t>(step));
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i) + 1);
}

TEST_F(ReporterTest, MetricsThatWaitTooLongAreLostAndCounted) {
  const testing::TempDir small;
  const auto mounted = testing::SmallDisk::Mount(small.path(), "size=1m");
  if (absl::IsUnavailable(mounted.status())) GTEST_SKIP() << mounted.status().message();
  ASSERT_TRUE(mounted.ok()) << mounted.status();
  const auto& disk = *mounted;
  const run_dir::RunDir dir(disk->path());
  ASSERT_TRUE(dir.CreateRankDirectory(0).ok());
  ASSERT_TRUE(ReserveSpace(dir.ProgressPath(0), 16 << 10).ok());
  auto reporter = Reporter::Open(dir, 0, {}, clock_);
  ASSERT_TRUE(reporter.ok()) << reporter.status();
  disk->FillSpace();
  const std::string name(1000, 'x');
  for (int64_t step = 1; step <= 20'000; ++step) reporter->AddMetric(step, name, 1);
  ASSERT_TRUE(reporter->EnterState(run_dir::Progress::State::kRunning).ok()) << "it goes on";
  EXPECT_THAT(run_dir::ReadProgress(dir, 0)->disk_full, HasSubstr("points of them are lost: "));
}

TEST_F(ReporterTest, AFolderThatCannotBeWrittenIsNamed) {
  ASSERT_TRUE(ReplaceFile(folder_.File("file"), "").ok());
  const auto reporter = Reporter::Open(run_dir::RunDir(folder_.File("file")), 0, {}, clock_);
  EXPECT_THAT(std::string(reporter.status().message()), HasSubstr(folder_.File("file")));
}

}  // namespace
}  // namespace trainyard::trainer
