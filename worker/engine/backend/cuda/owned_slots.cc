// Places ranges so that an element and its slots lie at the same offset within four elements, since
// kernels read four at a time.
#include "worker/engine/backend/cuda/owned_slots.h"

#include <algorithm>

#include "common/base/check.h"

namespace trainyard::engine::cuda {

OwnedSlots::OwnedSlots(absl::Span<const ElementRange> owned, int64_t elements)
    : is_whole_(owned.empty()), stride_(elements) {
  if (is_whole_) {
    parts_.push_back({0, elements, 0});
    return;
  }
  int64_t place = 0;
  for (const ElementRange& range : owned) {
    TY_CHECK(range.begin < range.end && range.end <= elements);
    place += ((range.begin - place) % 4 + 4) % 4;
    parts_.push_back({range.begin, range.end, place});
    place += range.end - range.begin;
  }
  stride_ = (place + 3) / 4 * 4;
}

const OwnedSlots::Part& OwnedSlots::PartOf(int64_t begin, int64_t end) const {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.begin <= begin && end <= part.end;
  });
  TY_CHECK(found != parts_.end());
  return *found;
}

}  // namespace trainyard::engine::cuda
