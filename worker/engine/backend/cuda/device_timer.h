// Measures how long a stream works on parts of its work.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {

// Times come from events on one stream. It keeps the events of as many parts as there were between
// two calls of TakeTotal, and kPartsMax at most.
class DeviceTimer {
 public:
  // Mark the beginning and the end of a part.
  absl::Status Begin(cudaStream_t stream);
  absl::Status End(cudaStream_t stream);
  // Returns the time that the parts since the last call of this took, and waits for the last one.
  absl::StatusOr<absl::Duration> TakeTotal();

 private:
  // A step has fewer parts. A caller who does not ask for the time uses no more events than these.
  static constexpr size_t kPartsMax = 1024;
  struct Part {
    Event begin;
    Event end;
  };

  absl::Status AddUp();

  std::vector<Part> parts_;
  size_t used_ = 0;  // the number of parts that are not added up yet
  absl::Duration total_;
};

}  // namespace trainyard::engine::cuda
