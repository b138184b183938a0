// Stream capture: operations on a captured stream become nodes of a graph. Other streams join by
// waiting for an event that was recorded in the capture, and must be waited for before it ends.
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
  // The stream on which the capture began, and on which it must end.
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  // A forbidden call was made. The capture can only be ended, which yields no graph.
  bool is_invalid = false;
  // Null once the capture has ended.
  std::unique_ptr<CUgraph_st> graph;
};

cudaError_t AppendToCapture(CUstream_st* stream, Operation operation);

// Returns an error if the legacy default stream waits for a stream that is being captured. The
// caller may not do anything then.
cudaError_t CheckLegacyUse(Machine& machine, Device& device);

// Calls that may wait for the device, or allocate, invalidate captures that forbid them: those of
// any thread in mode global, and those of the own thread unless they are relaxed.
cudaError_t CheckUnsafeCall(Machine& machine);

// Invalidates the capture of the stream, if there is one.
cudaError_t CheckNotCaptured(const CUstream_st& stream);
cudaError_t CheckNotCaptured(Machine& machine, const Device& device);

// These implement cudaEventRecord and cudaStreamWaitEvent for captured streams and events.
cudaError_t RecordInCapture(CUevent_st* event, CUstream_st* stream);
cudaError_t WaitInCapture(CUstream_st* stream, const CUevent_st& event);

}  // namespace trainyard::cuda_on_cpu
