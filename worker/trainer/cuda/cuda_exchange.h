// How the gradients of GPUs meet: between them where they reach each other, else by way of the
// host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/trainer/run/gang.h"

namespace trainyard::trainer {

// Of an executable of the cuda backend, whose arenas lie on the current device; over NCCL where
// request.device is a communicator of it.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeCudaExchange(
    DeviceExchangeRequest request);

}  // namespace trainyard::trainer
