// Defines the port over which a stage of a pipeline exchanges values with one of its neighbours:
// activations in one direction, and their gradients in the other.
//
// Each direction has a line of its own, and what one carries never waits for the other. A stage
// waits for what it receives, and not for what it sends. So no two stages wait for each other,
// whatever the order in which each of them computes.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace trainyard::parallel {

// One thread uses a link. Its two ends call Send and Receive alike, in one order for each
// direction, with the same sizes. Values lie in the memory in which the stage computes. Every wait
// for the neighbour has a deadline, and after an error a link is of no further use.
class StageLink {
 public:
  virtual ~StageLink() = default;

  // Sends what the work that the stage was given so far leaves in `values`, which must not change
  // before AwaitSent of the same slot.
  virtual absl::Status Send(int slot, absl::Span<const float> values) = 0;
  // Waits until what was last sent from the slot has left.
  virtual absl::Status AwaitSent(int slot) = 0;

  // Waits until the neighbour's next values are here. Work that the stage is given later finds them
  // in `values`.
  virtual absl::Status Receive(int slot, absl::Span<float> values) = 0;
  // Notes that of the work that the stage will be given, none reads what was received in the slot.
  // Only then may the slot receive again.
  virtual absl::Status Release(int slot) = 0;

  // Pass a few floats of the host's memory. All that was sent before has left when SendNumbers
  // returns.
  virtual absl::Status SendNumbers(absl::Span<const float> numbers) = 0;
  virtual absl::Status ReceiveNumbers(absl::Span<float> numbers) = 0;

  // Sets the deadline of later waits. May be called between two other calls.
  virtual void set_timeout(absl::Duration timeout) = 0;
};

}  // namespace trainyard::parallel
