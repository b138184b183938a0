// Defines the port to partial sums beside the reduction arena. They let the sums of several
// replicas be added in one fixed order, whichever replicas a rank hosts.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainyard::engine {

// Slot numbers are below CompileOptions::sum_slots. Each slot has as many elements as the reduction
// arena, in the same order.
class SumSlots {
 public:
  virtual absl::Span<float> sums(int slot) = 0;
  // Moves the reduction arena to the slot. The next Accumulate begins with zeros.
  virtual absl::Status StoreSums(int slot) = 0;
  // Computes reduction()[begin, end) = sums(slot)[begin, end) + reduction()[begin, end), element by
  // element.
  virtual absl::Status AddSums(int slot, int64_t begin, int64_t end) = 0;

 protected:
  ~SumSlots() = default;
};

}  // namespace trainyard::engine
