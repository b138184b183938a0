// NCCL's symbols, emulated for ranks that are threads of one process, each with an emulated device
// of its own: two on one device are refused, as NCCL does. Of the library, what the project uses is
// there, for f32.
//
// A call on a non-blocking communicator stays in progress until all ranks have made it: so a rank
// that hangs is one that does not call. Collectives run where the host waits for a stream, when all
// ranks' streams have come to them, in the order of each communicator; graphs run them again.
#pragma once

#include <nccl.h>

namespace trainyard::cuda_on_cpu::nccl {

// From here on the communicator reports `error` as an asynchronous one, as it does when a network
// connection breaks; its collectives on the way end without result.
void BreakAsynchronously(ncclComm_t communicator, ncclResult_t error);

// Whether ncclMemAlloc fails, as on devices without virtual memory management. False at first.
void SetMemAllocFails(bool fails);

// Registrations that were made and not undone, over all communicators.
int LiveRegistrations();

// Communicators that exist.
int LiveCommunicators();

}  // namespace trainyard::cuda_on_cpu::nccl
