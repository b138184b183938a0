// Wraps resources of the CUDA runtime, each owned by an object: memory, streams, events, captured
// graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/backend/cuda/runtime/device_allocator.h"
#include "worker/engine/graph/memory_plan.h"

namespace trainyard::engine::cuda {

// Converts an error: RESOURCE_EXHAUSTED for memory, UNAVAILABLE if no device or driver answers,
// INTERNAL otherwise. The message says what was tried, with the runtime's number and words. The
// runtime then forgets the error, so that LaunchStatus does not find it later.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);
// Returns the error of the launches since the last call, if there is one.
absl::Status LaunchStatus(absl::string_view what);
// Returns OK if the current device can be used; otherwise the status says what to do about it.
absl::Status CheckDevice();
// Returns the memory of the current device in bytes, used or not.
absl::StatusOr<int64_t> DeviceMemory();

// Returns the major number of the current device's compute capability, or 0 if it is unknown.
int DeviceCapability();

// Returns the bytes that the memory of the current device moves in practice, reading and writing
// together.
double MemoryBytesPerMicrosecond();

// Buffers, workspaces and rows of vectors begin at a multiple of this.
inline constexpr int64_t kDeviceAlignment = 256;
inline int64_t AlignUpDevice(int64_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

// Zeroed memory of the device. With Backing::kAddresses it only has addresses, which planning
// needs.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static absl::StatusOr<DeviceBuffer> Create(int64_t bytes, Backing backing);
  // The memory comes from the allocator.
  static absl::StatusOr<DeviceBuffer> CreateFrom(const DeviceAllocator& allocator, int64_t bytes);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  absl::Status Clear() const;

  using Free = std::function<void(std::byte*)>;
  std::unique_ptr<std::byte, Free> data_{nullptr, [](std::byte*) {}};
  int64_t bytes_ = 0;
};

// Copies ordinary host memory to the device. Work that is given to any stream after it returns
// finds the data there. cudaMemcpy alone promises that only for the default stream: it returns when
// the host's memory was read, and our streams do not wait for the default one.
absl::Status CopyToDevice(void* to, const void* from, int64_t bytes, absl::string_view what);

// Zeroed memory of the host that the device reads and writes directly.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  static absl::StatusOr<PinnedBuffer> Create(int64_t bytes);
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { cudaFreeHost(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
// Creates a stream that does not wait for the default stream, nor does the default stream wait for
// it.
absl::StatusOr<Stream> CreateStream();

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
absl::StatusOr<Event> CreateEvent(bool has_time = false);

struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
struct CapturedGraph {
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph> executable;
  int64_t nodes = 0;
};
// Captures what `record` enqueues on the stream as one graph; nothing runs. Returns the error of
// `record` where it fails.
absl::StatusOr<CapturedGraph> Capture(cudaStream_t stream,
                                      const std::function<absl::Status()>& record);

}  // namespace trainyard::engine::cuda
