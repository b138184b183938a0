// Tests the emulated runtime: streams and events, within a device and between two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/testing/cuda_on_cpu_kernels.h"

namespace trainyard::cuda_on_cpu {
namespace {

using engine::cuda::Scale;

constexpr uint64_t kSeeds = 50;

// Two streams, an event, and memory of the device and of the host that it can reach.
class CudaOnCpuRuntime : public testing::Test {
 protected:
  static constexpr int kCount = 300;
  static constexpr size_t kBytes = kCount * sizeof(float);

  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&event_), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&x_), kBytes), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned_), kBytes), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaFree(x_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(second_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(first_), cudaSuccess);
    cudaGetLastError();
  }

  // Sets x to zeros on the first stream.
  void Clear() { EXPECT_EQ(cudaMemsetAsync(x_, 0, kBytes, first_), cudaSuccess); }
  // The value that all of x must have once the device is done.
  float Value() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<float> values(kCount);
    EXPECT_EQ(cudaMemcpy(values.data(), x_, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_THAT(values, testing::Each(values[0]));
    return values[0];
  }
  // Returns what `run` leaves in x under many seeds.
  std::set<float> ValuesUnderSeeds(const std::function<void()>& run) {
    std::set<float> values;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SetSeed(seed);
      run();
      values.insert(Value());
    }
    return values;
  }

  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t event_ = nullptr;
  float* x_ = nullptr;
  float* pinned_ = nullptr;
};

TEST_F(CudaOnCpuRuntime, AStreamKeepsItsOrder) {
  EXPECT_THAT(ValuesUnderSeeds([&] {
                Clear();
                Scale(x_, kCount, 1, 3, first_);
                Scale(x_, kCount, 10, 0, first_);
                Scale(x_, kCount, 1, 4, first_);
              }),
              testing::ElementsAre(34));
}

TEST_F(CudaOnCpuRuntime, ARaceOfStreamsShowsUnderSomeSeed) {
  EXPECT_THAT(ValuesUnderSeeds([&] {
                Clear();
                cudaStreamSynchronize(first_);
                Scale(x_, kCount, 1, 3, first_);
                Scale(x_, kCount, 10, 0, second_);
              }),
              testing::ElementsAre(3, 30));
}

TEST_F(CudaOnCpuRuntime, AnEventOrdersStreams) {
  EXPECT_THAT(ValuesUnderSeeds([&] {
                Clear();
                Scale(x_, kCount, 1, 3, first_);
                EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
                EXPECT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
                Scale(x_, kCount, 10, 0, second_);
              }),
              testing::ElementsAre(30));
}

TEST_F(CudaOnCpuRuntime, AWaitIsForTheEventAsItWasRecordedThen) {
  // The event is recorded again after the wait, so the second stream need not see the 3.
  EXPECT_THAT(ValuesUnderSeeds([&] {
                Clear();
                cudaEventRecord(event_, first_);
                cudaStreamWaitEvent(second_, event_, 0);
                Scale(x_, kCount, 1, 3, first_);
                cudaEventRecord(event_, first_);
                Scale(x_, kCount, 10, 0, second_);
              }),
              testing::ElementsAre(3, 30));
}

TEST_F(CudaOnCpuRuntime, WaitingForAnEventWaitsForNothingAfterIt) {
  std::set<float> values;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SetSeed(seed);
    *pinned_ = 0;
    Clear();
    cudaEventRecord(event_, first_);
    cudaMemcpyAsync(pinned_, x_, sizeof(float), cudaMemcpyDeviceToHost, first_);
    Scale(x_, kCount, 1, 3, first_);
    cudaMemcpyAsync(pinned_, x_, sizeof(float), cudaMemcpyDeviceToHost, first_);
    EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
    values.insert(*pinned_);
    cudaDeviceSynchronize();
    EXPECT_EQ(*pinned_, 3);
  }
  EXPECT_THAT(values, testing::Contains(0));
}

TEST_F(CudaOnCpuRuntime, PinnedMemoryReusedTooEarlyShowsUnderSomeSeed) {
  EXPECT_THAT(ValuesUnderSeeds([&] {
                std::fill_n(pinned_, kCount, 1.0F);
                cudaMemcpyAsync(x_, pinned_, kBytes, cudaMemcpyHostToDevice, first_);
                std::fill_n(pinned_, kCount, 2.0F);
              }),
              testing::ElementsAre(1, 2));
}

TEST_F(CudaOnCpuRuntime, PageableMemoryIsReadAtOnce) {
  EXPECT_THAT(ValuesUnderSeeds([&] {
                std::vector<float> values(kCount, 1);
                cudaMemcpyAsync(x_, values.data(), kBytes, cudaMemcpyHostToDevice, first_);
                values.assign(kCount, 2);
              }),
              testing::ElementsAre(1));
}

TEST_F(CudaOnCpuRuntime, ABlockingCopyOfPageableMemoryMayArriveLate) {
  const std::vector<float> ones(kCount, 1);
  const auto scaled = [&](bool waits) {
    return ValuesUnderSeeds([&] {
      Clear();
      EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
      EXPECT_EQ(cudaMemcpy(x_, ones.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
      if (waits) {
        EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
      }
      Scale(x_, kCount, 2, 3, first_);
    });
  };
  EXPECT_THAT(scaled(true), testing::ElementsAre(5));
  EXPECT_THAT(scaled(false), testing::AllOf(testing::Contains(1), testing::Contains(5)));
}

TEST_F(CudaOnCpuRuntime, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  EXPECT_THAT(ValuesUnderSeeds([&] {
                cudaMemsetAsync(x_, 0, kBytes, blocking);
                Scale(x_, kCount, 1, 3, nullptr);
                Scale(x_, kCount, 10, 0, blocking);
              }),
              testing::ElementsAre(30));
  // A stream that does not block takes no part in that.
  EXPECT_THAT(ValuesUnderSeeds([&] {
                Clear();
                cudaStreamSynchronize(first_);
                Scale(x_, kCount, 1, 3, nullptr);
                Scale(x_, kCount, 10, 0, first_);
              }),
              testing::ElementsAre(3, 30));
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(CudaOnCpuRuntime, ADestroyedStreamStillDoesItsWork) {
  cudaStream_t brief = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking), cudaSuccess);
  cudaMemsetAsync(x_, 0, kBytes, brief);
  Scale(x_, kCount, 1, 3, brief);
  EXPECT_EQ(cudaStreamDestroy(brief), cudaSuccess);
  EXPECT_EQ(Value(), 3);
  EXPECT_EQ(cudaStreamSynchronize(brief), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

TEST_F(CudaOnCpuRuntime, AQueryIsTrueInTheEnd) {
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  for (int i = 0; i < 10; ++i) {
    Clear();
  }
  cudaEventRecord(event_, first_);
  int asked = 1;
  while (cudaEventQuery(event_) == cudaErrorNotReady) {
    ASSERT_LT(++asked, 20);
  }
  EXPECT_GT(asked, 1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
}

TEST_F(CudaOnCpuRuntime, TimeBetweenEventsIsAMicrosecondAnOperation) {
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  cudaEventRecord(event_, first_);
  for (int i = 0; i < 5; ++i) {
    Clear();
  }
  cudaEventRecord(end, first_);
  cudaEventSynchronize(end);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event_, end), cudaSuccess);
  EXPECT_FLOAT_EQ(milliseconds, 0.005F);
  cudaEventDestroy(end);
}

TEST_F(CudaOnCpuRuntime, AFullQueueMakesTheHostWait) {
  const int64_t before = KernelsLaunched();
  for (int i = 0; i < 3000; ++i) {
    Scale(x_, 1, 1, 0, first_);
  }
  EXPECT_GE(KernelsLaunched() - before, 3000 - 1024);
  cudaStreamSynchronize(first_);
  EXPECT_EQ(KernelsLaunched() - before, 3000);
}

TEST_F(CudaOnCpuRuntime, WorkOfOtherLibrariesKeepsTheOrder) {
  EXPECT_THAT(ValuesUnderSeeds([&] {
                Clear();
                EXPECT_EQ(Enqueue(first_, [this] { std::fill_n(x_, kCount, 7.0F); }), cudaSuccess);
                Scale(x_, kCount, 2, 0, first_);
              }),
              testing::ElementsAre(14));
}

// The work on the first stream is over only when that on the second one has run.
TEST_F(CudaOnCpuRuntime, WorkThatWaitsLetsOtherStreamsGoOn) {
  EXPECT_THAT(ValuesUnderSeeds([&] {
                bool is_there = false;
                Clear();
                EXPECT_EQ(EnqueueAttempts(first_, [&] { return is_there; }), cudaSuccess);
                Scale(x_, kCount, 1, 5, first_);
                EXPECT_EQ(Enqueue(second_, [&] { is_there = true; }), cudaSuccess);
                EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
              }),
              testing::ElementsAre(5));
}

TEST_F(CudaOnCpuRuntime, DevicesWaitForEachOthersEvents) {
  SetDeviceCount(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreate(&other), cudaSuccess);
  float* y = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&y), kBytes), cudaSuccess);
  // The event belongs to device 0, and the stream that waits belongs to device 1.
  Clear();
  EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other, event_, 0), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(y, x_, kBytes, cudaMemcpyDefault, other), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  float value = 1;
  EXPECT_EQ(cudaMemcpy(&value, y, sizeof(value), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 0);
  // A kernel runs only on the current device.
  Scale(x_, kCount, 1, 1, first_);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  cudaFree(y);
  cudaStreamDestroy(other);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  SetDeviceCount(1);
}

TEST_F(CudaOnCpuRuntime, DevicesOfTwoThreadsMayWaitForEachOther) {
  SetDeviceCount(2);
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  const auto meet = [&](int device) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(Enqueue(stream,
                      [&] {
                        std::unique_lock lock(mutex);
                        ++arrived;
                        changed.notify_all();
                        changed.wait(lock, [&] { return arrived == 2; });
                      }),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  };
  std::thread other(meet, 1);
  std::thread(meet, 0).join();
  other.join();
  EXPECT_EQ(arrived, 2);
  SetDeviceCount(1);
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu
