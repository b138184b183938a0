// Chooses how the gradients of a gang are exchanged.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/hosting.h"
#include "worker/trainer/run/gang.h"
#include "worker/trainer/run/run_setup.h"
#include "worker/trainer/run/step_strategy.h"

namespace trainyard::trainer {

struct StepExchange {
  std::unique_ptr<parallel::GradientExchange> exchange;
  bool updates_ranges = false;  // as in Gang
};

// Connects the ranks that sum gradients with each other: those of the same stage. They begin with
// `hosting`. This is a collective, after strategy.Join().
//
// If gradients lie in the host's memory and the optimizer's rule updates each element by itself,
// every rank updates only its own blocks. As many bytes travel as if each rank updated everything,
// and each makes only a part of the update.
absl::StatusOr<StepExchange> ConnectExchange(const RunSetup& setup,
                                             const parallel::Hosting& hosting,
                                             StepStrategy& strategy, Communicators& lines);

// Tells that train.exchange_precision has no effect.
void WarnOfExchangeInF32(absl::string_view reason);

}  // namespace trainyard::trainer
