// NCCL's symbols, emulated for ranks that are threads of one process, each with an emulated device
// of its own. As in NCCL, two ranks on one device are refused. The emulation has the parts of the
// library that the project uses, for f32.
//
// A call on a non-blocking communicator stays in progress until all ranks have made it, so a rank
// that hangs is one that does not call. Collectives run where the host waits for a stream, once the
// streams of all ranks have reached them, in the order of each communicator; other streams of the
// device go on meanwhile. Graphs run them again.
#pragma once

#include <nccl.h>

namespace trainyard::cuda_on_cpu::nccl {

// Makes the communicator report `error` as an asynchronous one from here on, as it does when a
// network connection breaks. Its collectives that are under way end without a result.
void BreakAsynchronously(ncclComm_t communicator, ncclResult_t error);

// The communicators that exist.
int LiveCommunicators();

// Returns how many pieces of memory are registered with communicators.
int Registrations();
// Returns how many were still registered when their communicator was finalised.
int ForgottenRegistrations();

}  // namespace trainyard::cuda_on_cpu::nccl
