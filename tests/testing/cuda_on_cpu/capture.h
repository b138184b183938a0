// Capture: what goes to a stream becomes nodes of a graph. Streams join by waiting for an event
// that was recorded in the capture, and must be waited for before it ends.
//
// All functions are called with the machine's mutex held.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <thread>

#include "tests/testing/cuda_on_cpu/graph.h"
#include "tests/testing/cuda_on_cpu/machine.h"

namespace trainyard::cuda_on_cpu {

struct Capture {
  uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  // Where it began, and must end.
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  // A forbidden call was made. It can only be ended, which yields no graph.
  bool is_invalid = false;
  // Gone once it has ended.
  std::unique_ptr<CUgraph_st> graph;
};

cudaError_t AppendToCapture(CUstream_st* stream, Operation operation);

// What the legacy default stream may not do while a stream that it waits for is captured: anything.
cudaError_t CheckLegacyUse(Machine& machine, Device& device);

// Calls that may wait for the device, or allocate, invalidate captures that forbid them: those of
// any thread in mode global, and the own thread's unless they are relaxed.
cudaError_t CheckUnsafeCall(Machine& machine);

// The stream must not be captured, or the capture is invalidated.
cudaError_t CheckNotCaptured(const CUstream_st& stream);
cudaError_t CheckNotCaptured(Machine& machine, const Device& device);

// cudaEventRecord and cudaStreamWaitEvent of captured streams and events.
cudaError_t RecordInCapture(CUevent_st* event, CUstream_st* stream);
cudaError_t WaitInCapture(CUstream_st* stream, const CUevent_st& event);

}  // namespace trainyard::cuda_on_cpu
