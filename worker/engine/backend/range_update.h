// Defines the port to an update that goes range by range, as the sums of the gradients arrive.
//
// An executable has it only if the update of an element needs nothing of other elements: an
// optimizer that takes norms of gradients or of weights updates all parameters at once.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainyard::engine {

// An update is BeginUpdate, then UpdateRange for the ranges whose sums have arrived, then
// EndUpdate, which folds in the statistics, takes the loss, counts the step and clears the
// reduction arena. The bits are the same as those of Executable::StartUpdate. Ranges are disjoint
// and lie in [0, parameters().size()). They need not cover it: what other ranks update must be
// written to parameters() before EndUpdate.
class RangeUpdate {
 public:
  virtual absl::Status BeginUpdate(double lr) = 0;
  virtual absl::Status UpdateRange(int64_t begin, int64_t end) = 0;
  virtual absl::Status EndUpdate() = 0;
  // Returns the slots of the optimizer and the moving averages that have the layout of
  // parameters(), each with parameters().size() elements. A rank that updates only some ranges has
  // only these ranges of them.
  virtual std::vector<absl::Span<float>> parameter_states() = 0;

 protected:
  ~RangeUpdate() = default;
};

}  // namespace trainyard::engine
