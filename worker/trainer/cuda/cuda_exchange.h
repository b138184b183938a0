// Makes the exchange that sums the gradients of GPUs, and the links between stages on GPUs: over
// NCCL if the GPUs reach each other, else by way of the host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/nccl/nccl_communicator.h"
#include "worker/parallel/nccl/nccl_stage_link.h"
#include "worker/trainer/run/gang.h"

namespace trainyard::trainer {

// Makes the exchange for an executable of the cuda backend, whose arenas lie on the current device.
// If `nccl` is null, it goes by way of the host. Otherwise the executable also sums the statistics
// of batch norm over `nccl`, if those of all ranks are asked for. Both share one communicator,
// which makes their sums one after the other in the order in which the training enqueues them, the
// same on all ranks.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeCudaExchange(
    std::shared_ptr<parallel::NcclCommunicator> nccl, DeviceExchangeRequest request);

// Makes the link of a stage whose executable is one of the cuda backend. If the lines of `nccl` are
// null, it goes by way of the host.
absl::StatusOr<std::unique_ptr<parallel::StageLink>> MakeCudaLink(parallel::NcclLines nccl,
                                                                  DeviceLinkRequest request);

}  // namespace trainyard::trainer
