// Device memory, planners and a convolution for tests over the emulated cuDNN.
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

// A planner that compares candidates, and keeps what it found.
struct Scrutinised {
  explicit Scrutinised(PlannerOptions options = {}) {
    options.scrutiny = {.verifies = true, .records = &records};
    planner = PlannerWith(options);
  }

  std::vector<PlanRecord> records;
  std::unique_ptr<Planner> planner;
};

// The type is f32, so that sums can be compared, with stride 2, two groups, and tensors within
// wider ones.
inline ConvProblem SmallConv() {
  ConvProblem problem;
  problem.type = Type::kF32;
  problem.tf32 = true;
  problem.rows = 2;
  problem.channels = 8;
  problem.height = 5;
  problem.width = 6;
  problem.out_channels = 4;
  problem.out_height = 3;
  problem.out_width = 3;
  problem.kernel = 3;
  problem.stride = 2;
  problem.padding = 1;
  problem.groups = 2;
  problem.x_stride = 12;
  problem.y_stride = 8;
  return problem;
}

inline ConvProblem SmallConvOf(int64_t rows) {
  ConvProblem problem = SmallConv();
  problem.rows = rows;
  return problem;
}

// The numbers of elements of the tensors of a convolution.
struct ConvSizes {
  size_t x, weight, y;
};
inline ConvSizes SizesOf(const ConvProblem& p) {
  return {static_cast<size_t>(p.rows * p.height * p.width * p.x_stride),
          static_cast<size_t>(p.out_channels * p.kernel * p.kernel * p.channels / p.groups),
          static_cast<size_t>(p.rows * p.out_height * p.out_width * p.y_stride)};
}

}  // namespace trainyard::engine::cuda::dnn
