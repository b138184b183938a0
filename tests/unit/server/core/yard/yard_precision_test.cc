// Tests that `train.precision: auto` is decided when the first attempt is placed, and then stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class YardPrecision : public YardTest {
 protected:
  static DeviceRecord Device(const std::string& name, const std::string& type, bool bf16) {
    DeviceRecord device;
    device.name = name;
    device.type = type;
    device.bf16 = bf16;
    return device;
  }

  void JoinWith(const std::string& worker, std::vector<DeviceRecord> devices) {
    TY_CHECK_OK(Register(worker, std::move(devices)));
    TY_CHECK_OK(Sync(worker, {}));
  }

  static Submission AutoSpec(int32_t devices, bool mixed = false) {
    Submission submission = Spec(devices);
    submission.demand = {devices, "", mixed};
    submission.auto_precision = true;
    return submission;
  }

  std::string PlacedOn(JobId job) {
    std::string text;
    for (const RankPlacement& rank : yard_->FindAttempt({job, Job(job).attempt})->ranks) {
      absl::StrAppend(&text, text.empty() ? "" : " ", rank.worker, ":", rank.device);
    }
    return text;
  }
};

TEST_F(YardPrecision, IsUndecidedWhileTheJobWaits) {
  const JobId job = Submit(AutoSpec(1));
  EXPECT_EQ(Job(job).precision, Precision::kNone);
  JoinWith("gpus", {Device("GPU-0", "h200", true)});
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Job(job).precision, Precision::kBf16);
  EXPECT_THAT(events_.back().message + events_[events_.size() - 2].message, HasSubstr("in bf16"));
}

TEST_F(YardPrecision, IsF32OnTheCpuAndOnMixedTypes) {
  JoinWith("cpus", {Device("cpu-0", "cpu", true)});
  const JobId on_cpu = Submit(AutoSpec(1));
  EXPECT_EQ(Job(on_cpu).precision, Precision::kF32);
  JoinWith("gpus", {Device("GPU-0", "h200", true), Device("GPU-1", "a100", true)});
  const JobId on_both = Submit(AutoSpec(2, /*mixed=*/true));
  EXPECT_EQ(State(on_both), "STARTING");
  EXPECT_EQ(Job(on_both).precision, Precision::kF32);
}

TEST_F(YardPrecision, ThatASpecNamesIsNotDecidedHere) {
  JoinWith("gpus", {Device("GPU-0", "h200", true)});
  Submission submission = AutoSpec(1);
  submission.auto_precision = false;
  const JobId job = Submit(submission);
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Job(job).precision, Precision::kNone);
}

TEST_F(YardPrecision, OfEachJobOfAnArrayIsItsOwn) {
  JoinWith("cpus", {Device("cpu-0", "cpu", false)});
  JoinWith("gpus", {Device("GPU-0", "h200", true)});
  Submission submission = AutoSpec(1);
  submission.array_size = 2;
  const JobId first = Submit(submission);
  const JobId second{first.value + 1};
  EXPECT_EQ(State(second), "STARTING");
  EXPECT_NE(Job(first).precision, Precision::kNone);
  EXPECT_NE(Job(first).precision, Job(second).precision);
}

// The job would fit on the CPUs, but continues in the precision in which it began.
TEST_F(YardPrecision, IsKeptByARetryAndDecidesWhereItRuns) {
  JoinWith("gpus", {Device("GPU-0", "h200", true)});
  const JobId job = Submit(AutoSpec(1));
  Run("gpus", job);
  JoinWith("cpus", {Device("cpu-0", "cpu", false)});
  const Failure failure{FailureClass::kHardware, "XID_79", "it fell off the bus"};
  ASSERT_TRUE(Sync("gpus", {SeeExit(job, OutcomeKind::kFailed, failure)}).ok());
  Advance(config_.backoff_max_us);
  EXPECT_EQ(State(job), "QUEUED") << "the GPU was set aside, and the CPU has no bf16";
  EXPECT_THAT(yard_->QueueReasons(job), Contains("1 device does not compute in bf16"));
  JoinWith("more", {Device("GPU-1", "b200", true)});
  EXPECT_EQ(PlacedOn(job), "more:GPU-1");
  EXPECT_EQ(Job(job).attempt, 2);
  EXPECT_EQ(Job(job).precision, Precision::kBf16);
}

TEST_F(YardPrecision, OfAJobThatBeganInF32StaysOnAGpu) {
  JoinWith("cpus", {Device("cpu-0", "cpu", false)});
  const JobId job = Submit(AutoSpec(1));
  Run("cpus", job);
  JoinWith("gpus", {Device("GPU-0", "h200", true)});
  ASSERT_TRUE(Apply(DrainWorker{"cpus", "user:op", "", 0}).ok());
  ASSERT_TRUE(Sync("cpus", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(PlacedOn(job), "gpus:GPU-0");
  EXPECT_EQ(Job(job).precision, Precision::kF32);
}

TEST_F(YardPrecision, SurvivesARestartOfTheServer) {
  JoinWith("gpus", {Device("GPU-0", "h200", true)});
  const JobId job = Submit(AutoSpec(1));
  Run("gpus", job);
  Restart();
  EXPECT_EQ(Job(job).precision, Precision::kBf16);
  // The worker comes back with other devices, and the job is not there.
  ASSERT_TRUE(Register("gpus", {Device("GPU-0", "v100", false)}).ok());
  ASSERT_TRUE(Sync("gpus", {}).ok());
  Advance(config_.backoff_max_us);
  ASSERT_TRUE(Sync("gpus", {}).ok());
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_EQ(Job(job).precision, Precision::kBf16);
}

TEST_F(YardPrecision, OfAnElasticJobKeepsItFromDevicesWithoutBf16) {
  config_.grow_after_us = kSecond;
  Restart();
  JoinWith("gpus", {Device("GPU-0", "h200", true)});
  Submission submission = AutoSpec(2, /*mixed=*/true);
  submission.demand.min_count = 1;
  const JobId job = Submit(submission);
  Run("gpus", job);
  EXPECT_EQ(Job(job).precision, Precision::kBf16);
  JoinWith("cpus", {Device("cpu-0", "cpu", false)});
  Advance(10 * kMinute);
  EXPECT_EQ(PlacedOn(job), "gpus:GPU-0");
  EXPECT_EQ(State(job), "RUNNING");
}

}  // namespace
}  // namespace trainyard::core
