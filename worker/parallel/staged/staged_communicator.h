// Collectives over device memory by way of the host's: for several ranks on one GPU, and where NCCL
// does not work.
//
// Values travel in chunks through two pinned buffers, so that while one is on the wire the next
// comes from the device and the one before goes back to it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/communicator.h"

namespace trainyard::parallel {

struct StagedOptions {
  // Elements of a chunk: large enough that a copy takes longer than its start.
  int64_t chunk_elements = int64_t{1} << 20;
};

// Spans lie in the memory of the device that is current now. `inner` works on host memory; its
// errors name its own calls, of which one of ours makes one a chunk. RESOURCE_EXHAUSTED where the
// host has no memory to pin.
absl::StatusOr<std::unique_ptr<Communicator>> MakeStagedCommunicator(
    std::unique_ptr<Communicator> inner, const StagedOptions& options = {});
// The same, with a communicator that is borrowed, and may be used by itself between our calls.
absl::StatusOr<std::unique_ptr<Communicator>> MakeStagedCommunicator(
    Communicator& inner, const StagedOptions& options = {});

}  // namespace trainyard::parallel
