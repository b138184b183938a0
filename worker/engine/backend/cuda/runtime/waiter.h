// Waits for the device. What a device waits for may be work of other ranks, which may never come,
// so that somebody who knows more can end a wait.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/engine/backend/executable.h"

namespace trainyard::engine::cuda {

class Waiter {
 public:
  void set_watch(WaitWatch watch) { watch_ = std::move(watch); }

  // Return when the event has happened, or all work on the stream is done, or the watch returns an
  // error. An event that was never recorded counts as one that has happened. `what` begins the
  // message of an error of the device.
  absl::Status ForEvent(cudaEvent_t event, absl::string_view what) const;
  absl::Status ForStream(cudaStream_t stream, absl::string_view what) const;

 private:
  absl::Status Poll(const std::function<cudaError_t()>& query, absl::string_view what) const;

  WaitWatch watch_;
};

}  // namespace trainyard::engine::cuda
