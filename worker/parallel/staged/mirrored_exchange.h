// A GradientExchange for device memory by way of the host's: terms are mirrored on the host as they
// become ready, any exchange of host memory sums them there, and sums or parameters go back. For
// several ranks on one GPU, and where NCCL does not work.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/block_exchange.h"
#include "worker/parallel/gradient_exchange.h"

namespace trainyard::parallel {

// Makes the exchange of the mirrors, whose spans stand in the place of the device's.
using MakeHostExchange =
    std::function<absl::StatusOr<std::unique_ptr<GradientExchange>>(WireExchangeOptions mirrors)>;

// `memory`: its spans lie in the memory of the device that is current now. `compute`: where
// backward and updates are enqueued. RESOURCE_EXHAUSTED where the host has no memory to pin.
absl::StatusOr<std::unique_ptr<GradientExchange>> MakeMirroredExchange(
    WireExchangeOptions memory, cudaStream_t compute, const MakeHostExchange& make_host);

}  // namespace trainyard::parallel
