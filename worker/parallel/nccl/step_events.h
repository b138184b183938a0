// Marks the parts of a step's communication on the device, and takes the times between the marks.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/nccl/device_handles.h"

namespace trainyard::parallel {

// The events of one step. Those of a bucket are recorded in this order.
struct StepEvents {
  struct OfBucket {
    OwnedEvent ready;    // backward has produced it
    OwnedEvent begun;    // its collectives may begin
    OwnedEvent summed;   // the reduction holds its sum
    OwnedEvent updated;  // this rank has updated its block
    OwnedEvent sending;  // its parameters leave
    OwnedEvent shared;   // all parameters of the bucket are here
  };

  absl::Status Create(size_t bucket_count);

  OwnedEvent begun;  // the computation of the step may begin
  std::vector<OfBucket> buckets;
  OwnedEvent done;  // nothing of the step's communication is left
};

// Describes how the host saw a step.
struct StepSight {
  absl::Duration begin_uptime;
  absl::Duration end_uptime;
  bool traces = false;
  int64_t bytes_sent = 0;
};

// Returns the times of a step that is done. `is_shared` tells of which buckets parameters
// travelled.
absl::StatusOr<CommStats> TakeStats(const StepEvents& events, const StepSight& sight,
                                    const std::function<bool(size_t bucket)>& is_shared);

}  // namespace trainyard::parallel
