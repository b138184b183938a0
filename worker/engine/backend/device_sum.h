// Lets devices sum over the ranks by themselves.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainyard::engine {

// Sums over the ranks in the order of a device's queue, so that the host need not wait. One thread
// uses it.
class DeviceSum {
 public:
  virtual ~DeviceSum() = default;

  // Enqueues the sum of `values`, which lie in the device's memory, over the ranks, element by
  // element, in place, on `queue` (Executable::device_queue). All ranks get the same bits. All of
  // them must make the same calls in the same order, together with those of other sums that the
  // same devices make.
  virtual absl::Status Enqueue(absl::Span<float> values, void* queue) = 0;

  // Waits until `event`, which was recorded after sums (for cuda a cudaEvent_t), has happened.
  // Returns an error if a rank is lost, or the ranks' deadline passes; then the device gives up
  // what it waits for.
  virtual absl::Status Await(void* event) = 0;
};

}  // namespace trainyard::engine
