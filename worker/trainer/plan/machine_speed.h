// How fast this machine computes and copies, measured in a fraction of a second: for predictions.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::trainer {

struct MachineSpeed {
  double flops_per_second = 0;  // of products, forward and backward, as the backend does them
  double bytes_per_second = 0;  // read and written, by copies that no cache holds
  // Of 3x3 convolutions, of which minimal filtering does a quarter; 0: as of products.
  double filtered_flops_per_second = 0;
};

absl::StatusOr<MachineSpeed> MeasureMachine(absl::string_view backend, int threads);

}  // namespace trainyard::trainer
