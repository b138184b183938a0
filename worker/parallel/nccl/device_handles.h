// Owns streams and events for exchanges over device memory, and converts CUDA's errors to statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard::parallel {

// Returns INTERNAL: "what: CUDA's words".
inline absl::Status FromCuda(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The error is reported here, and must not be found by the next launch.
  (void)cudaGetLastError();
  return absl::InternalError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

class OwnedStream {
 public:
  OwnedStream() = default;
  OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnedStream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  // Creates a stream of the highest priority, since others wait for what it carries. It does not
  // wait for the default stream.
  absl::Status Create() {
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess) {
      error = cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest);
    }
    return FromCuda(error, "stream of a communicator");
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Says if an event records the time at which it happened, which costs a little.
enum class EventTimes { kNone, kTaken };

class OwnedEvent {
 public:
  OwnedEvent() = default;
  OwnedEvent(OwnedEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  OwnedEvent& operator=(OwnedEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~OwnedEvent() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }

  absl::Status Create(EventTimes times = EventTimes::kNone) {
    const unsigned flags = times == EventTimes::kTaken ? cudaEventDefault : cudaEventDisableTiming;
    return FromCuda(cudaEventCreateWithFlags(&event_, flags), "event of a communicator");
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace trainyard::parallel
