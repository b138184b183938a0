// Sends an operation to the graph that its stream is captured into, or else to the machine.
#include "tests/testing/cuda_on_cpu/append.h"

#include <utility>

#include "tests/testing/cuda_on_cpu/capture.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

namespace trainyard::cuda_on_cpu {

cudaError_t Append(Machine& machine, CUstream_st* stream, Operation operation, Lock& lock) {
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->capture != nullptr) {
    return AppendToCapture(stream, std::move(operation));
  }
  if (stream->is_legacy) {
    const cudaError_t error = CheckLegacyUse(machine, *stream->device);
    if (error != cudaSuccess) {
      return error;
    }
  }
  machine.Push(stream, std::move(operation), lock);
  return cudaSuccess;
}

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (in_operation) {
    return cudaErrorNotPermitted;
  }
  Machine& machine = Machine::Get();
  Lock lock(machine.mutex);
  const cudaError_t error = machine.DriverError();
  if (error != cudaSuccess) {
    return error;
  }
  return Append(machine, machine.Resolve(stream),
                {.type = cudaGraphNodeTypeKernel, .work = std::move(work), .may_block = true},
                lock);
}

}  // namespace trainyard::cuda_on_cpu
