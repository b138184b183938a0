// Sends an operation to the graph that its stream is captured into, or else to the machine.
#include "tests/testing/cuda_on_cpu/append.h"

#include <atomic>
#include <utility>

#include "tests/testing/cuda_on_cpu/capture.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

namespace trainyard::cuda_on_cpu {
namespace {

std::atomic<int64_t> kernels_by_host = 0;
std::atomic<int64_t> graphs_by_host = 0;

}  // namespace

HostLaunches LaunchesByTheHost() {
  return {kernels_by_host, graphs_by_host};
}

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
  if (operation.type == cudaGraphNodeTypeKernel) ++kernels_by_host;
  if (operation.type == cudaGraphNodeTypeGraph) ++graphs_by_host;
  machine.Push(stream, std::move(operation), lock);
  return cudaSuccess;
}

namespace {

cudaError_t AppendKernel(cudaStream_t stream, std::function<void()> work,
                         std::function<bool()> attempt) {
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
                {.type = cudaGraphNodeTypeKernel,
                 .work = std::move(work),
                 .attempt = std::move(attempt),
                 .may_block = true},
                lock);
}

}  // namespace

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work) {
  return AppendKernel(stream, std::move(work), nullptr);
}

cudaError_t EnqueueAttempts(cudaStream_t stream, std::function<bool()> attempt) {
  // A graph knows only work that runs to its end.
  const auto work = [attempt] {
    while (!attempt()) {
      Machine& machine = Machine::Get();
      Lock lock(machine.mutex);
      machine.changed.wait_for(lock, kAttemptPause);
    }
  };
  return AppendKernel(stream, work, attempt);
}

}  // namespace trainyard::cuda_on_cpu
