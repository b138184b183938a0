// Measures in a fraction of a second how fast this machine computes and copies, for predictions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::trainer {

struct MachineSpeed {
  double flops_per_second = 0;  // in products, forward and backward, as the backend does them
  double bytes_per_second = 0;  // read and written, in copies that no cache holds
  // The speed in 3x3 convolutions of kNarrowChannels, counted as direct ones, of which minimal
  // filtering does a quarter. 0 means that they are as fast as products.
  double filtered_flops_per_second = 0;
  // The speed in those of kWideChannels, whose weights no near cache holds. 0 means that the
  // backend does not filter.
  double wide_filtered_flops_per_second = 0;
};

inline constexpr int64_t kNarrowChannels = 32;
inline constexpr int64_t kWideChannels = 256;

absl::StatusOr<MachineSpeed> MeasureMachine(absl::string_view backend, int threads);

}  // namespace trainyard::trainer
