// Makes the exchange that sums the gradients of GPUs: over NCCL where the GPUs reach each other,
// else by way of the host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/nccl/nccl_communicator.h"
#include "worker/trainer/run/gang.h"

namespace trainyard::trainer {

// For an executable of the cuda backend, whose arenas lie on the current device. A null `nccl`
// takes the way over the host.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeCudaExchange(
    std::unique_ptr<parallel::NcclCommunicator> nccl, DeviceExchangeRequest request);

}  // namespace trainyard::trainer
