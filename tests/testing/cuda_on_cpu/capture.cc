// Turns the operations of captured streams into nodes of a graph, under CUDA's rules.
#include "tests/testing/cuda_on_cpu/capture.h"

#include <algorithm>
#include <set>
#include <utility>

namespace trainyard::cuda_on_cpu {
namespace {

thread_local constinit cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t Invalidate(Capture& capture, cudaError_t error) {
  capture.is_invalid = true;
  return error;
}

// Returns true if the nodes before the stream's next one, and all nodes before those, are the whole
// graph.
bool LeadsToAll(const CUstream_st& stream, const CUgraph_st& graph) {
  std::set<const CUgraphNode_st*> reached(stream.tail.begin(), stream.tail.end());
  std::vector<const CUgraphNode_st*> open(reached.begin(), reached.end());
  while (!open.empty()) {
    const CUgraphNode_st* node = open.back();
    open.pop_back();
    for (const CUgraphNode_st* earlier : node->after) {
      if (reached.insert(earlier).second) {
        open.push_back(earlier);
      }
    }
  }
  return reached.size() == graph.nodes.size();
}

cudaError_t Begin(Machine& machine, CUstream_st* stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->is_legacy) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream->capture != nullptr) {
    return cudaErrorIllegalState;
  }
  static uint64_t captures_begun = 0;
  auto capture = std::make_shared<Capture>();
  capture->id = ++captures_begun;
  capture->mode = mode;
  capture->origin = stream;
  capture->thread = std::this_thread::get_id();
  capture->graph = std::make_unique<CUgraph_st>();
  stream->tail.clear();
  stream->capture = capture;
  machine.captures.push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t End(Machine& machine, CUstream_st* stream, cudaGraph_t* graph) {
  if (graph == nullptr) {
    return cudaErrorInvalidValue;
  }
  *graph = nullptr;
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) {
    return cudaErrorIllegalState;
  }
  if (capture->origin != stream) {
    return Invalidate(*capture, cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return Invalidate(*capture, cudaErrorStreamCaptureWrongThread);
  }
  cudaError_t error = cudaSuccess;
  if (capture->is_invalid) {
    error = cudaErrorStreamCaptureInvalidated;
  } else if (!LeadsToAll(*stream, *capture->graph)) {
    error = cudaErrorStreamCaptureUnjoined;
  }
  std::unique_ptr<CUgraph_st> captured = std::move(capture->graph);
  for (CUstream_st* joined : machine.streams) {
    if (joined->capture == capture) {
      joined->capture = nullptr;
      joined->tail.clear();
    }
  }
  std::erase(machine.captures, capture);
  if (error == cudaSuccess) {
    *graph = captured.release();
  }
  return error;
}

}  // namespace

cudaError_t AppendToCapture(CUstream_st* stream, Operation operation) {
  Capture& capture = *stream->capture;
  if (capture.is_invalid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  auto node = std::make_unique<CUgraphNode_st>();
  node->operation = std::move(operation);
  node->after = std::move(stream->tail);
  node->index = capture.graph->nodes.size();
  stream->tail = {node.get()};
  capture.graph->nodes.push_back(std::move(node));
  return cudaSuccess;
}

cudaError_t CheckLegacyUse(Machine& machine, Device& device) {
  cudaError_t error = cudaSuccess;
  for (const CUstream_st* stream : machine.streams) {
    if (stream->device == &device && stream->IsBlocking() && stream->capture != nullptr) {
      error = Invalidate(*stream->capture, cudaErrorStreamCaptureImplicit);
    }
  }
  return error;
}

cudaError_t CheckUnsafeCall(Machine& machine) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : machine.captures) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool is_forbidden = (thread_mode == cudaStreamCaptureModeGlobal &&
                               capture->mode == cudaStreamCaptureModeGlobal) ||
                              (thread_mode != cudaStreamCaptureModeRelaxed && is_own &&
                               capture->mode != cudaStreamCaptureModeRelaxed);
    if (is_forbidden) {
      error = Invalidate(*capture, cudaErrorStreamCaptureUnsupported);
    }
  }
  return error;
}

cudaError_t CheckNotCaptured(const CUstream_st& stream) {
  return stream.capture == nullptr ? cudaSuccess
                                   : Invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
}

cudaError_t CheckNotCaptured(Machine& machine, const Device& device) {
  cudaError_t error = cudaSuccess;
  for (const CUstream_st* stream : machine.streams) {
    if (stream->device == &device && stream->capture != nullptr) {
      error = CheckNotCaptured(*stream);
    }
  }
  return error;
}

cudaError_t RecordInCapture(CUevent_st* event, CUstream_st* stream) {
  if (stream->capture->is_invalid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  event->completion = nullptr;
  event->capture = stream->capture;
  event->captured = stream->tail;
  return cudaSuccess;
}

cudaError_t WaitInCapture(CUstream_st* stream, const CUevent_st& event) {
  if (event.capture == nullptr) {
    return Invalidate(*stream->capture, cudaErrorStreamCaptureIsolation);
  }
  if (event.capture->graph == nullptr) {
    return cudaErrorCapturedEvent;
  }
  if (event.capture->is_invalid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (stream->is_legacy) {
    return Invalidate(*event.capture, cudaErrorStreamCaptureImplicit);
  }
  if (stream->capture == nullptr) {
    stream->capture = event.capture;
    stream->tail = event.captured;
    return cudaSuccess;
  }
  if (stream->capture != event.capture) {
    Invalidate(*event.capture, cudaErrorStreamCaptureMerge);
    return Invalidate(*stream->capture, cudaErrorStreamCaptureMerge);
  }
  for (CUgraphNode_st* node : event.captured) {
    if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end()) {
      stream->tail.push_back(node);
    }
  }
  return cudaSuccess;
}

}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Call([&](Machine& machine, Lock&) {
    return trainyard::cuda_on_cpu::Begin(machine, machine.Resolve(stream), mode);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Call([&](Machine& machine, Lock&) {
    return trainyard::cuda_on_cpu::End(machine, machine.Resolve(stream), graph);
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* dependency_count) {
  return Call([&](Machine& machine, Lock&) {
    const CUstream_st* resolved = machine.Resolve(stream);
    if (resolved == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    const trainyard::cuda_on_cpu::Capture* capture = resolved->capture.get();
    *status = capture == nullptr    ? cudaStreamCaptureStatusNone
              : capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    if (*status != cudaStreamCaptureStatusActive) {
      return cudaSuccess;
    }
    if (id != nullptr) {
      *id = capture->id;
    }
    if (graph != nullptr) {
      *graph = capture->graph.get();
    }
    if (dependencies != nullptr) {
      *dependencies = resolved->tail.data();
    }
    if (edges != nullptr) {
      *edges = nullptr;
    }
    if (dependency_count != nullptr) {
      *dependency_count = resolved->tail.size();
    }
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return Call([&](Machine&, Lock&) {
    std::swap(*mode, trainyard::cuda_on_cpu::thread_mode);
    return cudaSuccess;
  });
}

}  // extern "C"
