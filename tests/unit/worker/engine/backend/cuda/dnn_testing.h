// Device memory and planners for tests over the emulated cuDNN.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "worker/engine/backend/cuda/dnn/planner.h"

namespace trainyard::engine::cuda::dnn {

// Memory of the device.
class Memory {
 public:
  explicit Memory(size_t bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess); }
  explicit Memory(const std::vector<float>& values) : Memory(values.size() * sizeof(float)) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(float), cudaMemcpyDefault),
              cudaSuccess);
    // Other streams do not wait for the copy.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  explicit Memory(const std::vector<uint16_t>& values) : Memory(values.size() * sizeof(uint16_t)) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(uint16_t), cudaMemcpyDefault),
              cudaSuccess);
    // Other streams do not wait for the copy.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }

  void* get() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  template <typename T>
  std::vector<T> Read(size_t count) const {
    std::vector<T> values(count);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDefault), cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
};

// Multiples of 1/8 in [-1, 1], which bf16, f16 and f32 can all hold.
inline std::vector<float> Values(size_t count, int seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((static_cast<int>(i) * 7 + seed * 5) % 17 - 8) / 8;
  }
  return values;
}

inline std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> made(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof(bits));
    made[i] = static_cast<uint16_t>(bits >> 16);
  }
  return made;
}

inline std::vector<float> FromBf16(const std::vector<uint16_t>& values) {
  std::vector<float> made(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(values[i]) << 16;
    std::memcpy(&made[i], &bits, sizeof(bits));
  }
  return made;
}

inline std::unique_ptr<Planner> PlannerWith(const PlannerOptions& options) {
  absl::StatusOr<std::unique_ptr<Planner>> planner = Planner::ForDevice(options);
  EXPECT_TRUE(planner.ok()) << planner.status();
  return planner.ok() ? *std::move(planner) : nullptr;
}

}  // namespace trainyard::engine::cuda::dnn
