// Owns streams and events for exchanges over device memory, and converts CUDA's errors to statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

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

// Records `event` on `stream`.
inline absl::Status Mark(const OwnedEvent& event, cudaStream_t stream) {
  return FromCuda(cudaEventRecord(event.get(), stream), "marking work on a stream");
}

// Returns the time between two events that have happened, by the device's clock.
inline absl::StatusOr<absl::Duration> Between(const OwnedEvent& from, const OwnedEvent& to) {
  float milliseconds = 0;
  const cudaError_t error = cudaEventElapsedTime(&milliseconds, from.get(), to.get());
  if (error != cudaSuccess) return FromCuda(error, "times of a step");
  return std::max(absl::ZeroDuration(), absl::Milliseconds(static_cast<double>(milliseconds)));
}

// Lets what is enqueued on `stream` from now on wait for what was marked with `event`.
inline absl::Status Follow(cudaStream_t stream, const OwnedEvent& event) {
  return FromCuda(cudaStreamWaitEvent(stream, event.get(), 0), "following work of another stream");
}

}  // namespace trainyard::parallel
