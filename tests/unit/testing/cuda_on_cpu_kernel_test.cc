// Tests that the emulated device runs kernels: correct ones give the results of hardware, and wrong
// ones are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/testing/cuda_on_cpu_kernels.h"

namespace trainyard::engine::cuda {
namespace {

// Memory of the device for the duration of a test.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), Bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), Bytes(), cudaMemcpyHostToDevice), cudaSuccess);
    // Other streams do not wait for the copy.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* get() const { return data_; }
  std::vector<T> Values() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, Bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  size_t Bytes() const { return count_ * sizeof(T); }

  size_t count_;
  T* data_ = nullptr;
};

std::vector<int> Ascending(int count) {
  std::vector<int> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(CudaOnCpuKernel, SumsByShufflesSharedMemoryAndAtomics) {
  const OnDevice<float> x(std::vector<float>(100'000, 1));
  for (const unsigned threads : {32U, 256U, 1024U}) {
    const OnDevice<float> sum(std::vector<float>{5});
    Sum(x.get(), 100'000, 7, threads, sum.get(), nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(sum.Values()[0], 100'005);
  }
}

TEST(CudaOnCpuKernel, AtomicsOfAllThreadsCount) {
  std::vector<unsigned> x(5000);
  std::iota(x.begin(), x.end(), 0U);
  const OnDevice<unsigned> given(x);
  const OnDevice<unsigned> counts(std::vector<unsigned>(8, 0));
  Histogram(given.get(), 5000, 8, counts.get(), nullptr);
  EXPECT_EQ(counts.Values(), std::vector<unsigned>(8, 625));
}

TEST(CudaOnCpuKernel, DynamicSharedMemoryCarriesValuesOverABarrier) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    cuda_on_cpu::SetSeed(seed);
    const OnDevice<int> x(Ascending(256));
    Reverse(x.get(), 256, nullptr);
    std::vector<int> expected = Ascending(256);
    std::reverse(expected.begin(), expected.end());
    EXPECT_EQ(x.Values(), expected);
  }
}

TEST(CudaOnCpuKernel, AMissingBarrierShows) {
  const OnDevice<int> x(Ascending(64));
  ReverseWithoutBarrier(x.get(), 64, nullptr);
  // Shared memory that nobody has written holds 0xFF bytes.
  EXPECT_THAT(x.Values(), testing::Contains(-1));
}

TEST(CudaOnCpuKernel, LanesExchangeAsTheHardwareDoes) {
  const OnDevice<int> out(std::vector<int>(size_t{kLaneRows} * 32, -1));
  Lanes(out.get(), nullptr);
  const std::vector<int> got = out.Values();
  for (int lane = 0; lane < 32; ++lane) {
    const int in_group = lane % 8;
    const int expected[kLaneRows] = {
        30,
        10 * (lane == 0 ? 0 : lane - 1),
        10 * (lane + 2 > 31 ? lane : lane + 2),
        10 * (lane ^ 5),
        10 * (lane - in_group + 1),
        10 * (in_group == 0 ? lane : lane - 1),
        10 * (in_group == 7 ? lane : lane + 1),
        std::bit_cast<int>(0xAAAAAAAAU),
        1,
        0,
        32,
    };
    for (int row = 0; row < kLaneRows; ++row) {
      EXPECT_EQ(got[static_cast<size_t>(row * 32 + lane)], expected[row])
          << "row " << row << " lane " << lane;
    }
  }
}

TEST(CudaOnCpuKernel, ShufflesAllBytesOfADouble) {
  const OnDevice<double> out(std::vector<double>(32, 0));
  SpreadDouble(out.get(), nullptr);
  EXPECT_EQ(out.Values(), std::vector<double>(32, 31.1));
}

TEST(CudaOnCpuKernel, RunsEachThreadOfEachBlockOnce) {
  const dim3 grid(3, 2, 4);
  const dim3 block(5, 3, 2);
  const OnDevice<unsigned> seen(std::vector<unsigned>(size_t{2} * 24, 0));
  CountThreads(grid, block, seen.get(), nullptr);
  const std::vector<unsigned> got = seen.Values();
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(got[2 * i], 30U);
    EXPECT_EQ(got[2 * i + 1], 29U * 30U / 2);
  }
}

TEST(CudaOnCpuKernel, ConvertsHalfTypes) {
  const std::vector<float> given = {1.0F, 0.1F, 3.14159F, -65504.0F, 1e-3F};
  const OnDevice<float> x(given);
  const OnDevice<float> as_bf16(std::vector<float>(given.size(), 0));
  const OnDevice<float> as_f16(std::vector<float>(given.size(), 0));
  RoundTrip(x.get(), static_cast<int>(given.size()), as_bf16.get(), as_f16.get(), nullptr);
  // bf16 has 8 bits of significand, and f16 has 11. The values were computed by hand.
  EXPECT_EQ(as_bf16.Values(),
            (std::vector<float>{1.0F, 0.10009765625F, 3.140625F, -65536.0F, 0.00099945068359375F}));
  EXPECT_EQ(as_f16.Values(), (std::vector<float>{1.0F, 0.0999755859375F, 3.140625F, -65504.0F,
                                                 0.0010004043579101562F}));
}

TEST(CudaOnCpuKernel, RefusesLaunchesThatHardwareRefuses) {
  const OnDevice<unsigned> seen(std::vector<unsigned>(2, 0));
  const struct {
    dim3 grid;
    dim3 block;
  } wrong[] = {{dim3(0), dim3(32)},         {dim3(1), dim3(0)},        {dim3(1), dim3(1025)},
               {dim3(1), dim3(64, 32)},     {dim3(1), dim3(1, 1, 65)}, {dim3(1, 65536), dim3(1)},
               {dim3(1, 1, 65536), dim3(1)}};
  for (const auto& [grid, block] : wrong) {
    CountThreads(grid, block, seen.get(), nullptr);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  EXPECT_EQ(seen.Values(), std::vector<unsigned>(2, 0));
}

TEST(CudaOnCpuKernel, MoreThan48KiBOfSharedMemoryMustBeAskedFor) {
  const OnDevice<int> x(Ascending(32));
  ReverseWithShared(x.get(), 32, 100 * 1024, /*is_allowed=*/false, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  ReverseWithShared(x.get(), 32, 100 * 1024, /*is_allowed=*/true, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(x.Values()[0], 31);
  ReverseWithShared(x.get(), 32, 228 * 1024, /*is_allowed=*/true, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(CudaOnCpuKernel, OrderOfAdditionDependsOnTheSeedAlone) {
  std::vector<float> x(4096);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 1.0F / static_cast<float>(i + 1);
  }
  const OnDevice<float> given(x);
  const auto sum_under = [&](uint64_t seed) {
    cuda_on_cpu::SetSeed(seed);
    const OnDevice<float> sum(std::vector<float>{0});
    Sum(given.get(), 4096, 64, 64, sum.get(), nullptr);
    return sum.Values()[0];
  };
  std::set<float> sums;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const float sum = sum_under(seed);
    EXPECT_EQ(sum, sum_under(seed));
    sums.insert(sum);
  }
  EXPECT_GT(sums.size(), 1U);
}

// The message names the mistake and the launch, so that a kernel's author can act on it.
void ExpectMistake(Mistake mistake, const char* message) {
  EXPECT_DEATH(
      {
        MakeMistake(mistake, nullptr);
        cudaDeviceSynchronize();
      },
      testing::AllOf(testing::ContainsRegex(message),
                     testing::ContainsRegex("kernel launched at .*cuda_on_cpu_kernels.cu:")));
}

TEST(CudaOnCpuKernelDeathTest, BarrierThatAThreadMissed) {
  ExpectMistake(Mistake::kMissedBarrier, "thread .5, 0, 0. has finished");
}

TEST(CudaOnCpuKernelDeathTest, TwoBarriersAtOnce) {
  ExpectMistake(Mistake::kTwoBarriers, "while others wait at that at");
}

TEST(CudaOnCpuKernelDeathTest, TwoWarpCallsAtOnce) {
  ExpectMistake(Mistake::kTwoWarpCalls, "in another call or with another mask");
}

TEST(CudaOnCpuKernelDeathTest, CallerOutsideItsMask) {
  ExpectMistake(Mistake::kNotInMask, "thread .(4|36), 0, 0. .* no lane of the mask");
}

TEST(CudaOnCpuKernelDeathTest, VoteThatALaneMissed) {
  ExpectMistake(Mistake::kMissedVote, "thread .9, 0, 0. has finished");
}

TEST(CudaOnCpuKernelDeathTest, LaneOutsideTheMaskIsRead) {
  ExpectMistake(Mistake::kReadsOutsideMask, "reads lane 12, which takes no part");
}

TEST(CudaOnCpuKernelDeathTest, WordsThatAreNotAligned) {
  ExpectMistake(Mistake::kMisalignedLoad, "accesses 8 bytes that begin 4 behind a multiple");
  ExpectMistake(Mistake::kMisalignedStore, "accesses 8 bytes that begin 4 behind a multiple");
}

TEST(CudaOnCpuKernelDeathTest, MemoryThatAGpuCannotReach) {
  float on_host = 0;
  EXPECT_DEATH(Scale(&on_host, 1, 1, 1, nullptr), "neither device memory nor pinned");
}

#ifdef __SANITIZE_ADDRESS__

TEST(CudaOnCpuKernelDeathTest, WritingPastAnArrayIsSeen) {
  EXPECT_DEATH(
      {
        const OnDevice<float> x(std::vector<float>(100, 1));
        Scale(x.get(), 101, 1, 1, nullptr);
        cudaDeviceSynchronize();
      },
      "heap-buffer-overflow");
}

TEST(CudaOnCpuKernelDeathTest, WritingPastDynamicSharedMemoryIsSeen) {
  EXPECT_DEATH(
      {
        const OnDevice<int> x(Ascending(32));
        ReverseWithShared(x.get(), 32, 31 * sizeof(int), /*is_allowed=*/false, nullptr);
        cudaDeviceSynchronize();
      },
      "heap-buffer-overflow");
}

#endif  // __SANITIZE_ADDRESS__

}  // namespace
}  // namespace trainyard::engine::cuda
