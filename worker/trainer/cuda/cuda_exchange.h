// Makes the exchange that sums the gradients of GPUs: over NCCL if the GPUs reach each other, else
// by way of the host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/nccl/nccl_communicator.h"
#include "worker/trainer/run/gang.h"

namespace trainyard::trainer {

// Makes the exchange for an executable of the cuda backend, whose arenas lie on the current device.
// If `nccl` is null, it goes by way of the host.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeCudaExchange(
    std::unique_ptr<parallel::NcclCommunicator> nccl, DeviceExchangeRequest request);

}  // namespace trainyard::trainer
