// Tests GPUs that fail, vanish and come back, and processes that use them.
#include "worker/agent/device_watch.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

GpuReading Errors(int64_t uncorrected) {
  GpuReading reading;
  reading.uncorrected_ecc_errors = uncorrected;
  return reading;
}

TEST(GpuFaults, AWellGpuHasNone) {
  GpuFaults faults;
  EXPECT_FALSE(faults.Take(GpuReading()));
  // Errors from the time before the daemon's start are ignored.
  EXPECT_FALSE(faults.Take(Errors(3)));
  faults.TakeXid(31);
  EXPECT_EQ(faults.reason(), "");
  EXPECT_FALSE(faults.ends_ranks());
}

TEST(GpuFaults, MemoryErrorsStayUntilTheyAreCountedAnew) {
  GpuFaults faults;
  faults.Take(Errors(3));
  faults.Take(Errors(5));
  EXPECT_THAT(faults.reason(), HasSubstr("2 memory errors beyond correction"));
  EXPECT_TRUE(faults.ends_ranks());
  faults.Take(Errors(5));
  EXPECT_THAT(faults.reason(), HasSubstr("beyond correction"));
  faults.Take(Errors(0));
  EXPECT_EQ(faults.reason(), "");
  EXPECT_FALSE(faults.ends_ranks());
}

TEST(GpuFaults, RowsThatWaitForAResetSetItAsideAndEndNothing) {
  GpuFaults faults;
  GpuReading reading;
  reading.is_remap_pending = true;
  faults.Take(reading);
  EXPECT_THAT(faults.reason(), HasSubstr("reset the GPU"));
  EXPECT_FALSE(faults.ends_ranks());
  reading.has_remap_failed = true;
  faults.Take(reading);
  EXPECT_THAT(faults.reason(), HasSubstr("replace the GPU"));
  faults.Take(GpuReading());
  EXPECT_EQ(faults.reason(), "");
  reading = {};
  reading.is_retirement_pending = true;
  faults.Take(reading);
  EXPECT_THAT(faults.reason(), HasSubstr("reset the GPU"));
}

TEST(GpuFaults, TheFirstXidThatEndsRanksIsTheReason) {
  GpuFaults faults;
  faults.TakeXid(63);
  EXPECT_THAT(faults.reason(), HasSubstr("Xid 63: "));
  EXPECT_FALSE(faults.ends_ranks());
  faults.TakeXid(79);
  EXPECT_EQ(faults.reason(), "Xid 79: the GPU has fallen off the bus; reset or replace it");
  EXPECT_TRUE(faults.ends_ranks());
  faults.TakeXid(119);
  EXPECT_THAT(faults.reason(), HasSubstr("Xid 79"));
  faults.Take(GpuReading());
  EXPECT_THAT(faults.reason(), HasSubstr("Xid 79")) << "an error is not over by being read";
}

TEST(GpuFaults, WhatComesBackWasReset) {
  GpuFaults faults;
  faults.Take(Errors(1));
  faults.TakeXid(63);
  EXPECT_FALSE(faults.Take(absl::DataLossError("15")));
  EXPECT_THAT(faults.reason(), HasSubstr("lost the GPU")) << "weighs more than a warning";
  EXPECT_TRUE(faults.ends_ranks());
  EXPECT_TRUE(faults.Take(Errors(4)));
  EXPECT_EQ(faults.reason(), "");
  EXPECT_FALSE(faults.ends_ranks());
  EXPECT_FALSE(faults.Take(absl::NotFoundError("6")));
  EXPECT_THAT(faults.reason(), HasSubstr("gone"));
}

TEST(GpuFaults, ADriverMayFailToAnswerNowAndThen) {
  GpuFaults faults;
  for (int i = 1; i < kUnreadableLooksMax; ++i) faults.Take(absl::UnavailableError("999"));
  EXPECT_EQ(faults.reason(), "");
  faults.Take(GpuReading());
  for (int i = 1; i < kUnreadableLooksMax; ++i) faults.Take(absl::UnavailableError("999"));
  EXPECT_EQ(faults.reason(), "") << "looks that fail count in a row only";
  faults.Take(absl::UnavailableError("999"));
  EXPECT_THAT(faults.reason(), HasSubstr("does not answer"));
  EXPECT_FALSE(faults.ends_ranks()) << "nobody knows";
}

class DeviceWatchTest : public ::testing::Test {
 protected:
  DeviceWatchTest() {
    Set("", "");
    auto nvml = Nvml::Open(FAKE_NVML);
    EXPECT_TRUE(nvml.ok()) << nvml.status();
    nvml_ = *std::move(nvml);
    std::vector<Device> devices = GpuDevices(*nvml_->ListGpus());
    devices.push_back(DivideCpus({0}, 1000, {1, 1})->front());
    ProcessView view;
    view.is_ours = [](int64_t pid) { return pid == 7; };
    view.is_visible = [](int64_t pid) { return pid == 7 || pid == 4711; };
    view.describe = [](int64_t pid) { return absl::StrCat("process ", pid); };
    watch_.emplace(devices, *nvml_, std::move(view));
  }
  ~DeviceWatchTest() override { unsetenv("FAKE_NVML_STATE"); }

  // Words of the first of two GPUs, and further lines.
  void Set(const std::string& words, const std::string& lines) {
    const std::string path =
        dir_.Write("gpus", absl::StrCat("gpu GPU-aa00 name=NVIDIA_H200 memory=1000 ", words,
                                        "\ngpu GPU-bb00 name=NVIDIA_H200 memory=1000\n", lines));
    setenv("FAKE_NVML_STATE", path.c_str(), 1);
  }
  const Device& First() { return watch_->gpus().front(); }
  const Device& Second() { return watch_->gpus().back(); }

  ::trainyard::testing::TempDir dir_;
  std::unique_ptr<Nvml> nvml_;
  std::optional<DeviceWatch> watch_;
};

TEST_F(DeviceWatchTest, TellsWhatGpusDoAndLeavesSharesOfTheCpuAlone) {
  Set("utilization=93 used=400 temperature=71 power=650000 throttle=0x40", "");
  watch_->Look({"GPU-aa00"});
  ASSERT_EQ(watch_->gpus().size(), 2u);
  EXPECT_EQ(watch_->Find("cpu-0"), nullptr);
  ASSERT_TRUE(First().usage.has_value());
  EXPECT_THAT(First().usage->utilization, Optional(0.93));
  EXPECT_THAT(First().usage->memory_bytes, Optional(400));
  EXPECT_THAT(First().usage->temperature_celsius, Optional(71));
  EXPECT_THAT(First().usage->power_watts, Optional(650));
  EXPECT_EQ(First().usage->slowed_by, "heat");
  EXPECT_EQ(First().health, Device::Health::kOk);
}

TEST_F(DeviceWatchTest, AGpuThatVanishesIsSetAsideAloneAndOfferedAgainWhenItIsBack) {
  watch_->Look({});
  EXPECT_EQ(First().health, Device::Health::kOk);
  Set("lost", "");
  watch_->Look({});
  EXPECT_EQ(First().health, Device::Health::kQuarantined);
  EXPECT_THAT(First().health_reason, HasSubstr("lost the GPU"));
  EXPECT_FALSE(First().usage.has_value());
  EXPECT_THAT(watch_->WhyRanksEnd("GPU-aa00"), HasSubstr("lost the GPU"));
  EXPECT_EQ(Second().health, Device::Health::kOk);
  EXPECT_EQ(watch_->WhyRanksEnd("GPU-bb00"), "");
  Set("", "");
  watch_->Look({});
  EXPECT_EQ(First().health, Device::Health::kOk);
  EXPECT_EQ(First().health_reason, "");
  EXPECT_EQ(watch_->WhyRanksEnd("GPU-aa00"), "");
}

TEST_F(DeviceWatchTest, XidsOfAGpuThatCameBackAreHeardAgain) {
  Set("", "xid 11 GPU-aa00 79\n");
  watch_->Look({});
  EXPECT_THAT(watch_->XidsOf("GPU-aa00"), ElementsAre(79));
  EXPECT_THAT(watch_->XidsOf("GPU-bb00"), IsEmpty());
  EXPECT_THAT(First().health_reason, HasSubstr("Xid 79"));
  Set("lost", "");
  watch_->Look({});
  EXPECT_THAT(watch_->XidsOf("GPU-aa00"), IsEmpty());
  Set("", "");
  watch_->Look({});
  EXPECT_EQ(First().health, Device::Health::kOk);
  Set("", "xid 12 GPU-aa00 48\n");
  watch_->Look({});
  EXPECT_THAT(First().health_reason, HasSubstr("Xid 48"));
}

TEST_F(DeviceWatchTest, AStrangerIsMarkedAndARankThatHasJustEndedIsNot) {
  Set("pids=4711", "");
  watch_->Look({});
  EXPECT_EQ(First().health, Device::Health::kUnmanagedUse);
  EXPECT_EQ(First().health_reason, "process 4711 uses it, which no job of ours started");
  EXPECT_EQ(watch_->WhyRanksEnd("GPU-aa00"), "");
  Set("pids=7", "");
  watch_->Look({"GPU-aa00"});
  EXPECT_EQ(First().health, Device::Health::kOk);
  Set("pids=8", "");  // it is no longer in /proc, but still on the driver's list
  watch_->Look({});
  EXPECT_EQ(First().health, Device::Health::kOk);
  watch_->Look({});
  EXPECT_EQ(First().health, Device::Health::kUnmanagedUse);
  EXPECT_THAT(First().health_reason, HasSubstr("cannot be seen"));
}

}  // namespace
}  // namespace trainyard::agent
