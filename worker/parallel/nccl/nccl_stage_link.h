// Implements the link between two stages over NCCL, between the memories of two GPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/host_stage_link.h"
#include "worker/parallel/nccl/nccl_communicator.h"
#include "worker/parallel/stage_link.h"

namespace trainyard::parallel {

// The communicators of the two directions, each of which has the two neighbours alone.
struct NcclLines {
  std::unique_ptr<NcclCommunicator> receives;
  std::unique_ptr<NcclCommunicator> sends;
};

// Makes a link between stages that compute on `compute`, in so many slots. `host` carries the
// numbers. The neighbour is host.peer in all of the lines. Both ends call it at the same time.
absl::StatusOr<std::unique_ptr<StageLink>> MakeNcclStageLink(NcclLines lines, HostLines host,
                                                             int slots, cudaStream_t compute);

}  // namespace trainyard::parallel
