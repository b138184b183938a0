// Lets an executable of the cuda backend sum over NCCL by itself.
#pragma once

#include <memory>

#include "worker/engine/backend/device_sum.h"
#include "worker/parallel/nccl/nccl_communicator.h"

namespace trainyard::trainer {

// Makes sums over the communicator, which others may use in the same order on all ranks. Its
// timeout bounds every wait, and names the collective of the error.
std::shared_ptr<engine::DeviceSum> MakeNcclSum(std::shared_ptr<parallel::NcclCommunicator> nccl);

}  // namespace trainyard::trainer
