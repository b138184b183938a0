// Contains what the tests of batch_norm's kernels share: statistics by plain loops in f64, and the
// memory that the kernels work in.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "worker/engine/backend/cuda/kernels/norm.h"

namespace trainyard::engine::cuda {

inline constexpr float kEps = 1e-5F;

struct Statistics {
  std::vector<double> mean, variance;
};

// Returns the statistics of pixels [begin, end).
inline Statistics StatisticsOf(const TestView& x, int64_t begin, int64_t end, int64_t channels) {
  Statistics result;
  const auto pixels = static_cast<double>(end - begin);
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0;
    double variance = 0;
    for (int64_t p = begin; p < end; ++p) mean += x.at(p, c);
    mean /= pixels;
    for (int64_t p = begin; p < end; ++p) variance += (x.at(p, c) - mean) * (x.at(p, c) - mean);
    result.mean.push_back(mean);
    result.variance.push_back(variance / pixels);
  }
  return result;
}
inline Statistics StatisticsOf(const TestView& x, int64_t pixels, int64_t channels) {
  return StatisticsOf(x, 0, pixels, channels);
}

inline double At(const std::vector<double>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}
inline double At(const std::vector<float>& values, int64_t i) {
  return static_cast<double>(values[static_cast<size_t>(i)]);
}

struct Scratch {
  Scratch(int64_t pixels, int64_t channels, int64_t groups = 1)
      : workspace(static_cast<size_t>(NormWorkspace(pixels, channels, groups)) / sizeof(float)),
        tickets(std::vector<uint32_t>(kNormTickets / sizeof(uint32_t), 0)) {}

  bool HasZeroTickets() const {
    return tickets.Read() == std::vector<uint32_t>(kNormTickets / sizeof(uint32_t), 0);
  }

  DeviceArray<float> workspace;
  DeviceArray<uint32_t> tickets;
};

}  // namespace trainyard::engine::cuda
