// Which exchange a gang's gradients take.
#pragma once

#include "absl/status/status.h"
#include "worker/trainer/training.h"

namespace trainyard::trainer {

// Fills in what depends on it: training.exchange and training.updates_ranges. A collective.
absl::Status ConnectExchange(Training& training);

}  // namespace trainyard::trainer
