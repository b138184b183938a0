// Says where the slots of the optimizer lie. A rank that updates only some ranges of the parameters
// has slots only for these, one range behind the other.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/backend/range_update.h"

namespace trainyard::engine::cuda {

class OwnedSlots {
 public:
  // Elements [begin, end) of a slot lie from element `place` of its memory on.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t place = 0;
  };

  OwnedSlots() = default;
  // `owned` are ascending ranges of `elements` parameters; if there are none, all are owned.
  OwnedSlots(absl::Span<const ElementRange> owned, int64_t elements);

  bool is_whole() const { return is_whole_; }
  // Returns the elements that a slot takes in memory, which are a multiple of four unless the slot
  // is whole.
  int64_t stride() const { return stride_; }
  absl::Span<const Part> parts() const { return parts_; }
  // Returns the part that holds all elements of the range.
  const Part& PartOf(int64_t begin, int64_t end) const;

 private:
  bool is_whole_ = true;
  int64_t stride_ = 0;
  std::vector<Part> parts_;
};

}  // namespace trainyard::engine::cuda
