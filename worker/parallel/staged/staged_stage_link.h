// Implements the link between two stages on GPUs by way of the host, for stages that share a GPU,
// and for hosts on which NCCL does not work.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/host_stage_link.h"
#include "worker/parallel/stage_link.h"

namespace trainyard::parallel {

// Makes a link between stages that compute on `compute`, in so many slots. A message has
// `floats_max` floats at most. Returns RESOURCE_EXHAUSTED if the host has no memory to pin.
absl::StatusOr<std::unique_ptr<StageLink>> MakeStagedStageLink(HostLines host, int slots,
                                                               size_t floats_max,
                                                               cudaStream_t compute);

}  // namespace trainyard::parallel
