// Implements events, which are points in a stream that the host and other streams can wait for.
#include <utility>

#include "tests/testing/cuda_on_cpu/append.h"
#include "tests/testing/cuda_on_cpu/capture.h"
#include "tests/testing/cuda_on_cpu/machine.h"

namespace trainyard::cuda_on_cpu {
namespace {

cudaError_t Record(Machine& machine, Lock& lock, CUevent_st* event, CUstream_st* stream) {
  if (stream == nullptr || !machine.events.contains(event) ||
      event->device != stream->device->index) {
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->capture != nullptr) {
    return RecordInCapture(event, stream);
  }
  auto completion = std::make_shared<Completion>(stream->device);
  // This happens before the operation is appended, since the mutex may be free for a moment then.
  event->completion = completion;
  event->capture = nullptr;
  event->captured.clear();
  return Append(
      machine, stream,
      {.type = cudaGraphNodeTypeEventRecord, .work = nullptr, .completes = std::move(completion)},
      lock);
}

cudaError_t Wait(Machine& machine, Lock& lock, CUstream_st* stream, const CUevent_st* event) {
  if (stream == nullptr || !machine.events.contains(const_cast<CUevent_st*>(event))) {
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->capture != nullptr || event->capture != nullptr) {
    return WaitInCapture(stream, *event);
  }
  if (event->completion == nullptr) {
    return cudaSuccess;
  }
  return Append(
      machine, stream,
      {.type = cudaGraphNodeTypeWaitEvent, .work = nullptr, .waits_for = event->completion}, lock);
}

// Returns cudaSuccess if the host may ask about the event.
cudaError_t CheckAskable(Machine& machine, CUevent_st* event) {
  if (!machine.events.contains(event)) {
    return cudaErrorInvalidResourceHandle;
  }
  if (event->capture != nullptr) {
    event->capture->is_invalid = true;
    return cudaErrorCapturedEvent;
  }
  return CheckUnsafeCall(machine);
}

cudaError_t Elapsed(Machine& machine, float* milliseconds, CUevent_st* start, CUevent_st* end) {
  if (milliseconds == nullptr) {
    return cudaErrorInvalidValue;
  }
  for (CUevent_st* event : {start, end}) {
    if (!machine.events.contains(event) || event->completion == nullptr ||
        (event->flags & cudaEventDisableTiming) != 0 || event->device != start->device) {
      return cudaErrorInvalidResourceHandle;
    }
  }
  if (!start->completion->done || !end->completion->done) {
    return cudaErrorNotReady;
  }
  *milliseconds =
      static_cast<float>(end->completion->time_us - start->completion->time_us) / 1000.0F;
  return cudaSuccess;
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::CheckAskable;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Call([&](Machine& machine, Lock&) {
    if (event == nullptr) {
      return cudaErrorInvalidValue;
    }
    *event = new CUevent_st;
    (*event)->device = machine.CurrentDevice().index;
    (*event)->flags = flags;
    machine.events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Call([&](Machine& machine, Lock&) {
    if (machine.events.erase(event) == 0) {
      return cudaErrorInvalidResourceHandle;
    }
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call([&](Machine& machine, Lock& lock) {
    return trainyard::cuda_on_cpu::Record(machine, lock, event, machine.Resolve(stream));
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Call([&](Machine& machine, Lock& lock) {
    return trainyard::cuda_on_cpu::Wait(machine, lock, machine.Resolve(stream), event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Call([&](Machine& machine, Lock& lock) {
    const cudaError_t error = CheckAskable(machine, event);
    if (error == cudaSuccess && event->completion != nullptr) {
      // The event may be recorded again meanwhile, which makes another completion.
      const auto completion = event->completion;
      machine.RunUntil(*completion->device, lock, [&] { return completion->done; });
    }
    return error;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Call([&](Machine& machine, Lock& lock) {
    const cudaError_t error = CheckAskable(machine, event);
    if (error != cudaSuccess || event->completion == nullptr) {
      return error;
    }
    const auto completion = event->completion;
    // Time passes between two calls, as on a real device.
    if (!completion->done && !completion->device->running) {
      machine.RunOne(*completion->device, lock, /*may_block=*/true);
    }
    return completion->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return Call([&](Machine& machine, Lock&) {
    return trainyard::cuda_on_cpu::Elapsed(machine, milliseconds, start, end);
  });
}

}  // extern "C"
