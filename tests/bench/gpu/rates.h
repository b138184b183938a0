// The measured rates of a card at its best, against which a step is judged.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/engine/backend/backend.h"

namespace trainyard::engine::bench {

struct Rates {
  std::string device;
  // Bytes read and written by copies within the device: the runtime's, and our own kernel's.
  double copy_bytes_per_second = 0;
  double kernel_bytes_per_second = 0;
  // The rate of a square matrix product of random numbers by cuBLASLt, by Precision.
  std::array<double, 4> flops_per_second = {};
  // The time of one node in a graph of kernels that do almost nothing, each of which depends on the
  // one before.
  double seconds_per_node = 0;

  // The larger of the two rates.
  double bytes_per_second() const;
  double flops(Precision precision) const {
    return flops_per_second[static_cast<size_t>(precision)];
  }
};

struct RateSizes {
  int64_t copy_bytes = int64_t{1} << 30;
  int64_t matrix = 8192;  // rows and columns
  int64_t nodes = 1000;
  double seconds = 0.1;  // the least time of each measurement
};

// Measures on the current device. Returns the error of whatever cannot run there, or has no room.
absl::StatusOr<Rates> MeasureRates(const RateSizes& sizes);

nlohmann::json ToJson(const Rates& rates);
// Reads a file that bench_gpu --roofline --json wrote. INVALID_ARGUMENT for any other file.
absl::StatusOr<Rates> ReadRates(const std::string& path);
// Returns a table, as text.
std::string RenderRates(const Rates& rates);

}  // namespace trainyard::engine::bench
