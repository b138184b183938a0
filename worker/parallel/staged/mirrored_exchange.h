// Implements GradientExchange for device memory by way of the host. Terms are mirrored on the host
// as they become ready, an exchange of host memory sums them there, and sums or parameters are
// copied back. It serves several ranks on one GPU, and hosts on which NCCL does not work.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/block_exchange.h"
#include "worker/parallel/gradient_exchange.h"

namespace trainyard::parallel {

// Makes the exchange of the mirrors, whose spans stand in for the device's.
using MakeHostExchange =
    std::function<absl::StatusOr<std::unique_ptr<GradientExchange>>(WireExchangeOptions mirrors)>;

// Makes the exchange. The spans of `memory` lie on the device that is current now. Backward and
// updates are enqueued on `compute`. Returns RESOURCE_EXHAUSTED if the host has no memory to pin.
absl::StatusOr<std::unique_ptr<GradientExchange>> MakeMirroredExchange(
    WireExchangeOptions memory, cudaStream_t compute, const MakeHostExchange& make_host);

}  // namespace trainyard::parallel
