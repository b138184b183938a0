// Implements streams, and waiting for them.
#include <utility>

#include "tests/testing/cuda_on_cpu/append.h"
#include "tests/testing/cuda_on_cpu/capture.h"
#include "tests/testing/cuda_on_cpu/machine.h"

namespace trainyard::cuda_on_cpu {
namespace {

// On hardware, lower numbers run first. Here priorities are only stored.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

cudaError_t Create(Machine& machine, cudaStream_t* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) {
    return cudaErrorInvalidValue;
  }
  Device& device = machine.CurrentDevice();
  auto stream = std::make_unique<CUstream_st>();
  stream->device = &device;
  stream->flags = flags;
  stream->priority = priority < kGreatestPriority ? kGreatestPriority
                     : priority > kLeastPriority  ? kLeastPriority
                                                  : priority;
  *handle = stream.get();
  machine.streams.insert(stream.get());
  device.streams.push_back(std::move(stream));
  return cudaSuccess;
}

cudaError_t Destroy(Machine& machine, CUstream_st* stream) {
  if (stream == nullptr || stream->is_legacy) {
    return cudaErrorInvalidResourceHandle;
  }
  const cudaError_t error = CheckNotCaptured(*stream);
  if (error != cudaSuccess) {
    return error;
  }
  machine.streams.erase(stream);
  Device& device = *stream->device;
  // The call returns at once. Queued work still runs.
  stream->is_destroyed = true;
  if (stream->queue.empty()) {
    if (device.last_run == stream) {
      device.last_run = nullptr;
    }
    std::erase_if(device.streams, [&](const auto& owned) { return owned.get() == stream; });
  }
  return cudaSuccess;
}

// Returns cudaSuccess if the stream may be waited for, or asked whether it is done.
cudaError_t CheckWaitable(Machine& machine, const CUstream_st* stream) {
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  const cudaError_t error = CheckNotCaptured(*stream);
  if (error != cudaSuccess) {
    return error;
  }
  if (stream->is_legacy) {
    const cudaError_t legacy_error = CheckLegacyUse(machine, *stream->device);
    if (legacy_error != cudaSuccess) {
      return legacy_error;
    }
  }
  return CheckUnsafeCall(machine);
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::CheckWaitable;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return Call([&](Machine& machine, Lock&) {
    return trainyard::cuda_on_cpu::Create(machine, stream, flags, priority);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, trainyard::cuda_on_cpu::kLeastPriority);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Call([&](Machine&, Lock&) {
    if (least != nullptr) {
      *least = trainyard::cuda_on_cpu::kLeastPriority;
    }
    if (greatest != nullptr) {
      *greatest = trainyard::cuda_on_cpu::kGreatestPriority;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return Call([&](Machine& machine, Lock&) {
    const CUstream_st* resolved = machine.Resolve(stream);
    if (resolved == nullptr || priority == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    *priority = resolved->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return Call([&](Machine& machine, Lock&) {
    const CUstream_st* resolved = machine.Resolve(stream);
    if (resolved == nullptr || flags == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    *flags = resolved->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return Call([&](Machine& machine, Lock&) {
    const CUstream_st* resolved = machine.Resolve(stream);
    if (resolved == nullptr || device == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    *device = resolved->device->index;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Call([&](Machine& machine, Lock&) {
    return trainyard::cuda_on_cpu::Destroy(machine, machine.Resolve(stream));
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Call([&](Machine& machine, Lock& lock) {
    CUstream_st* resolved = machine.Resolve(stream);
    const cudaError_t error = CheckWaitable(machine, resolved);
    if (error == cudaSuccess) {
      machine.Drain(resolved, lock);
    }
    return error;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Call([&](Machine& machine, Lock& lock) {
    CUstream_st* resolved = machine.Resolve(stream);
    const cudaError_t error = CheckWaitable(machine, resolved);
    if (error != cudaSuccess) {
      return error;
    }
    // Time passes between two calls, as on a real device.
    if (!resolved->queue.empty() && !resolved->device->running) {
      machine.RunOne(*resolved->device, lock, /*may_block=*/true);
    }
    return resolved->queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return Call([&](Machine& machine, Lock& lock) {
    cudaError_t error = CheckNotCaptured(machine, machine.CurrentDevice());
    if (error == cudaSuccess) {
      error = CheckUnsafeCall(machine);
    }
    if (error == cudaSuccess) {
      machine.Drain(machine.CurrentDevice(), lock);
    }
    return error;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Call([&](Machine& machine, Lock& lock) {
    if (function == nullptr) {
      return cudaErrorInvalidValue;
    }
    return Append(machine, machine.Resolve(stream),
                  {.type = cudaGraphNodeTypeHost,
                   .work = [function, data] { function(data); },
                   .may_block = true},
                  lock);
  });
}

}  // extern "C"
