// Measures how long a stream works on the parts of a step.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/backend/pipeline_stage.h"

namespace trainyard::engine::cuda {

// Times come from events on one stream, and are read when the device has done a step, so that
// nobody waits for them: while the steps that have ended are not taken, the next one may be
// measured. It keeps the events of as many parts as the steps have, and kPartsMax at most.
class DeviceTimer {
 public:
  // The number of steps that may have ended and not be taken.
  static constexpr size_t kEndedMax = 2;

  // Marks the beginning of a step, unless it has begun.
  absl::Status BeginStep(cudaStream_t stream);
  // Mark the beginning and the end of a part. A step begins with its first part at the latest.
  absl::Status Begin(cudaStream_t stream);
  absl::Status End(cudaStream_t stream);
  // Ends the step.
  void EndStep();
  // Returns the times of the oldest step that has ended, which the device must have done. They are
  // zero if it has no parts.
  absl::StatusOr<DeviceTimes> TakeStep();

 private:
  // A step has fewer parts. A caller who never ends a step uses no more events than these.
  static constexpr size_t kPartsMax = 1024;
  struct Part {
    Event begin;
    Event end;
  };
  struct Step {
    Event begin;
    bool has_begun = false;
    std::vector<Part> parts;
    size_t used = 0;  // the number of parts that are not added up yet
    absl::Duration added_up;
  };

  static absl::Status AddUp(Step& step);
  Step& open() { return steps_[(oldest_ + ended_) % steps_.size()]; }

  std::array<Step, kEndedMax + 1> steps_;
  size_t oldest_ = 0;
  size_t ended_ = 0;
};

}  // namespace trainyard::engine::cuda
