// Which exchange a gang's gradients take.
#pragma once

#include "absl/status/status.h"
#include "worker/trainer/run/training.h"

namespace trainyard::trainer {

// Fills in training.exchange and training.updates_ranges, for a gang that begins with `hosting`. A
// collective. Of pipelines beside each other the ranks of each stage have an exchange of their own.
//
// Where gradients lie in the host's memory and the optimizer's rule updates each element by itself,
// every rank updates its blocks alone: the same bytes travel, and each rank does a part of the
// update in the place of all of it.
absl::Status ConnectExchange(const parallel::Hosting& hosting, Training& training);

}  // namespace trainyard::trainer
