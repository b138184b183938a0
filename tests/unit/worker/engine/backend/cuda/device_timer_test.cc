// Tests the times of steps of which several are under way.
#include "worker/engine/backend/cuda/device_timer.h"

#include <cuda_runtime_api.h>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

namespace trainyard::engine::cuda {
namespace {

// The clock of the emulated device counts what it works on.
constexpr absl::Duration kWork = absl::Microseconds(1);

class DeviceTimerTest : public ::testing::Test {
 protected:
  void Work() {
    ASSERT_EQ(cuda_on_cpu::Enqueue(stream_.get(), [] {}), cudaSuccess);
  }
  void Part(int work) {
    ASSERT_TRUE(timer_.Begin(stream_.get()).ok());
    for (int i = 0; i < work; ++i) Work();
    ASSERT_TRUE(timer_.End(stream_.get()).ok());
  }
  void AwaitDevice() { ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess); }

  Stream stream_ = *CreateStream();
  DeviceTimer timer_;
};

// The second step is under way when the times of the first one are read.
TEST_F(DeviceTimerTest, KeepsStepsApart) {
  Part(1);
  Work();
  Part(2);
  timer_.EndStep();
  AwaitDevice();
  Part(0);
  const absl::StatusOr<DeviceTimes> first = timer_.TakeStep();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->computed, 3 * kWork);
  EXPECT_EQ(first->total, 4 * kWork);
  Part(1);
  timer_.EndStep();
  AwaitDevice();
  const absl::StatusOr<DeviceTimes> second = timer_.TakeStep();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->computed, kWork);
  EXPECT_EQ(second->total, kWork);
}

TEST_F(DeviceTimerTest, CountsFromTheBeginOfTheStep) {
  ASSERT_TRUE(timer_.BeginStep(stream_.get()).ok());
  Work();
  ASSERT_TRUE(timer_.BeginStep(stream_.get()).ok());
  Part(1);
  timer_.EndStep();
  AwaitDevice();
  const absl::StatusOr<DeviceTimes> times = timer_.TakeStep();
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->computed, kWork);
  EXPECT_EQ(times->total, 2 * kWork);
}

TEST_F(DeviceTimerTest, ReadsStepsInTheirOrder) {
  Part(2);
  timer_.EndStep();
  timer_.EndStep();
  AwaitDevice();
  EXPECT_EQ(timer_.TakeStep()->computed, 2 * kWork);
  const absl::StatusOr<DeviceTimes> empty = timer_.TakeStep();
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->computed, absl::ZeroDuration());
  EXPECT_EQ(empty->total, absl::ZeroDuration());
}

// Nobody ends a step of evaluations, so that its events are used again.
TEST_F(DeviceTimerTest, AddsUpMorePartsThanItHasEvents) {
  constexpr int kParts = 1500;
  for (int i = 0; i < kParts; ++i) Part(1);
  timer_.EndStep();
  AwaitDevice();
  const absl::StatusOr<DeviceTimes> times = timer_.TakeStep();
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->computed, kParts * kWork);
  EXPECT_EQ(times->total, kParts * kWork);
}

}  // namespace
}  // namespace trainyard::engine::cuda
