// Tests the emulation of CUB's radix sort through the backend's own call, and beside it what the
// emulation refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <numeric>
#include <random>
#include <vector>

#include "tests/testing/device_array.h"
#include "worker/engine/backend/cuda/kernels/sort.h"

namespace trainyard::engine::cuda {
namespace {

using testing::DeviceArray;
using Ints = std::vector<int32_t>;

Ints RandomKeys(int64_t count, int32_t keys) {
  std::mt19937 random(1);
  Ints numbers(static_cast<size_t>(count));
  for (int32_t& number : numbers) number = static_cast<int32_t>(random() % unsigned(keys));
  return numbers;
}

// Keys with their positions as values, and where the sorted ones go.
struct Pairs {
  explicit Pairs(const Ints& given)
      : keys(given),
        values(Positions(given.size())),
        sorted_keys(given.size()),
        sorted_values(given.size()),
        workspace(static_cast<size_t>(SortWorkspace(size()))) {}

  static Ints Positions(size_t count) {
    Ints positions(count);
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }
  int64_t size() const { return static_cast<int64_t>(keys.size()); }
  cudaError_t Sort(int bits, cudaStream_t stream) const {
    return SortPairs(keys.data(), values.data(), size(), bits, sorted_keys.data(),
                     sorted_values.data(), workspace.data(), stream);
  }

  DeviceArray<int32_t> keys, values, sorted_keys, sorted_values;
  DeviceArray<uint8_t> workspace;
};

Ints StablySorted(const Ints& keys, int bits) {
  Ints order = Pairs::Positions(keys.size());
  const auto key = [&](int32_t i) { return keys[static_cast<size_t>(i)] & ((1 << bits) - 1); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return key(a) < key(b); });
  return order;
}

TEST(CubOnCpu, SortsByTheBitsThatItIsGivenAndKeepsTheOrderOfEqualKeys) {
  for (const int64_t count : {1, 700, 6000}) {
    for (const int bits : {1, 8, 13}) {
      const Ints keys = RandomKeys(count, 1 << 10);
      const Pairs pairs(keys);
      ASSERT_EQ(pairs.Sort(bits, nullptr), cudaSuccess);
      const Ints order = StablySorted(keys, bits);
      EXPECT_EQ(pairs.sorted_values.Read(), order) << count << " " << bits;
      Ints sorted;
      for (const int32_t i : order) sorted.push_back(keys[static_cast<size_t>(i)]);
      EXPECT_EQ(pairs.sorted_keys.Read(), sorted) << count << " " << bits;
      EXPECT_EQ(pairs.keys.Read(), keys);
    }
  }
}

TEST(CubOnCpu, IsCapturedAsTheNodesThatAreCounted) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (const int64_t count : {700, 6000}) {
    for (const int bits : {7, 16, 17}) {
      const Ints keys = RandomKeys(count, 1 << 7);
      const Pairs pairs(keys);
      // The stream does not wait for the copies of the keys.
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
      ASSERT_EQ(pairs.Sort(bits, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      size_t nodes = 0;
      ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
      EXPECT_EQ(static_cast<int64_t>(nodes), SortLaunches(count, bits));
      cudaGraphExec_t exec = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      for (int launch = 0; launch < 2; ++launch) {
        ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
        EXPECT_EQ(pairs.sorted_values.Read(), StablySorted(keys, bits));
      }
      EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

cudaError_t SortIn(const Pairs& pairs, void* temporary, size_t& bytes, int32_t* sorted_keys) {
  return cub::DeviceRadixSort::SortPairs(temporary, bytes, pairs.keys.data(), sorted_keys,
                                         pairs.values.data(), pairs.sorted_values.data(),
                                         static_cast<int>(pairs.size()), 0, 16, nullptr);
}

TEST(CubOnCpu, SaysWhatItNeedsAndRefusesLess) {
  const Pairs pairs(RandomKeys(6000, 5));
  size_t bytes = 0;
  ASSERT_EQ(SortIn(pairs, nullptr, bytes, pairs.sorted_keys.data()), cudaSuccess);
  EXPECT_GT(bytes, 2 * 6000 * sizeof(int32_t));
  EXPECT_EQ(pairs.sorted_keys.Read()[0], static_cast<int32_t>(0xA5A5A5A5)) << "nothing is sorted";
  --bytes;
  EXPECT_EQ(SortIn(pairs, pairs.workspace.data(), bytes, pairs.sorted_keys.data()),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ++bytes;
  EXPECT_EQ(SortIn(pairs, pairs.workspace.data(), bytes, pairs.sorted_keys.data()), cudaSuccess);
}

TEST(CubOnCpuDeathTest, EndsTheProcessIfArraysOverlapOrAreNotOnTheDevice) {
  const Pairs pairs(RandomKeys(100, 5));
  size_t bytes = pairs.workspace.size();
  auto* const within = reinterpret_cast<int32_t*>(pairs.workspace.data());
  EXPECT_DEATH(SortIn(pairs, within, bytes, within), "overlaps another");
  Ints host(100);
  EXPECT_DEATH(SortIn(pairs, pairs.workspace.data(), bytes, host.data()),
               "not in the memory of the device");
  EXPECT_DEATH(SortIn(pairs, pairs.workspace.data(), bytes, pairs.sorted_keys.data() + 1),
               "not in the memory of the device");
}

}  // namespace
}  // namespace trainyard::engine::cuda
