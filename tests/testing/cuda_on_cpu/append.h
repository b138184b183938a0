// Declares the function by which every operation gets onto a stream, captured or not.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/testing/cuda_on_cpu/machine.h"

namespace trainyard::cuda_on_cpu {

// Appends to the stream, or to the graph that it is captured into.
cudaError_t Append(Machine& machine, CUstream_st* stream, Operation operation, Lock& lock);

}  // namespace trainyard::cuda_on_cpu
