// Defines the port to an update that goes range by range, as the sums of the gradients arrive.
//
// An executable has it only if the update of an element needs nothing of other elements: an
// optimizer that takes norms of gradients or of weights updates all parameters at once.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainyard::engine {

// Elements [begin, end) of the parameters.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
};

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
  // A rank that updates only some ranges has only these ranges of the optimizer's slots and of the
  // moving averages. This calls `complete` for each of them, with memory of parameters().size()
  // elements where the own ranges are, and it must write the others there. If `reads` is true, the
  // whole state can be read afterwards, until the next update. It may be called between two steps.
  using CompleteState = std::function<absl::Status(absl::Span<float> state)>;
  virtual absl::Status CompleteStates(const CompleteState& complete, bool reads) = 0;

 protected:
  ~RangeUpdate() = default;
};

}  // namespace trainyard::engine
