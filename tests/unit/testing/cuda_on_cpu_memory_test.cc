// Tests the emulated runtime: memory, copies, devices and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

namespace trainyard::cuda_on_cpu {
namespace {

class CudaOnCpuMemory : public testing::Test {
 protected:
  static constexpr int kCount = 300;
  static constexpr size_t kBytes = kCount * sizeof(float);

  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&x_), kBytes), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned_), kBytes), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaFree(x_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    cudaGetLastError();
  }

  cudaStream_t stream_ = nullptr;
  float* x_ = nullptr;
  float* pinned_ = nullptr;
};

TEST_F(CudaOnCpuMemory, CopiesRowsWithPitches) {
  const std::vector<float> rows = {1, 2, 99, 3, 4, 99};
  const size_t width = 2 * sizeof(float);
  EXPECT_EQ(cudaMemcpy2DAsync(x_, width, rows.data(), 3 * sizeof(float), width, 2,
                              cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  std::vector<float> got(4);
  EXPECT_EQ(cudaMemcpyAsync(got.data(), x_, 2 * width, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_THAT(got, testing::ElementsAre(1, 2, 3, 4));
}

TEST_F(CudaOnCpuMemory, CopiesAreCheckedAgainstWhatWasAllocated) {
  std::vector<float> host(kCount + 1);
  const size_t too_many = kBytes + sizeof(float);
  EXPECT_EQ(cudaMemcpy(x_, host.data(), too_many, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), x_, kBytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), host.data(), 4, cudaMemcpyDeviceToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(x_, 0, too_many, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 4, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x_, host.data(), kBytes, cudaMemcpyDefault), cudaSuccess);
}

TEST_F(CudaOnCpuMemory, CountsMemoryAndKnowsPointers) {
  const int64_t before = LiveBytes();
  size_t free_before = 0;
  size_t all = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &all), cudaSuccess);
  void* more = nullptr;
  ASSERT_EQ(cudaMalloc(&more, 1000), cudaSuccess);
  EXPECT_EQ(LiveBytes(), before + 1000);
  size_t free_after = 0;
  cudaMemGetInfo(&free_after, &all);
  EXPECT_EQ(free_before - free_after, 1000U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(more) % 256, 0U);

  cudaPointerAttributes attributes = {};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(more) + 999), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, pinned_), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, &attributes), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);

  EXPECT_EQ(cudaFree(more), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(LiveBytes(), before);
}

TEST_F(CudaOnCpuMemory, FreshMemoryIsNotANumber) {
  float* fresh = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&fresh), sizeof(float)), cudaSuccess);
  float value = 0;
  cudaMemcpy(&value, fresh, sizeof(float), cudaMemcpyDeviceToHost);
  EXPECT_THAT(value, testing::IsNan());
  cudaFree(fresh);
}

TEST_F(CudaOnCpuMemory, ADeviceRunsOutOfMemory) {
  const int64_t before = LiveBytes();
  SetDeviceBytes(before + 1000);
  void* pointer = &pointer;
  EXPECT_EQ(cudaMalloc(&pointer, 1001), cudaErrorMemoryAllocation);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&pointer, 1000), cudaSuccess);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
  SetDeviceBytes(int64_t{8} << 30);
}

TEST(CudaOnCpuErrors, AHostWithoutDeviceOrDriverSaysSo) {
  int count = 7;
  SetDeviceCount(0);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
  SetDeviceCount(kNoDriver);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorInsufficientDriver");
  int version = 1;
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 0);
  SetDeviceCount(1);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()), "invalid device ordinal");
}

TEST(CudaOnCpuErrors, TheLastErrorIsTheThreads) {
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  // A call that succeeds keeps the error.
  int device = 0;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaOnCpuErrors, WorkMayNotCallTheRuntime) {
  cudaError_t seen = cudaSuccess;
  ASSERT_EQ(cudaLaunchHostFunc(
                nullptr,
                [](void* result) { *static_cast<cudaError_t*>(result) = cudaDeviceSynchronize(); },
                &seen),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(seen, cudaErrorNotPermitted);
  cudaGetLastError();
}

TEST(CudaOnCpuErrors, DescribesADevice) {
  cudaDeviceProp properties = {};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_STREQ(properties.name, "CUDA on CPU");
  EXPECT_EQ(properties.major, 9);
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(value, properties.multiProcessorCount);
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu
