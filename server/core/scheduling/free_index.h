// Knows how many free slots each island and worker has, so that the one that a gang fills best is
// found without a look at all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard::core {

// Finds items, which are numbered from 0, by a count that each of them has. There is a row of bits
// for each count.
class FreeIndex {
 public:
  // No count ever gets larger than `largest`.
  FreeIndex(std::vector<int32_t> counts, int32_t largest);

  void Change(int32_t item, int32_t by);
  // The first item from `from` on that has this count, or -1.
  int32_t Find(int32_t count, int32_t from) const;
  int32_t largest() const { return static_cast<int32_t>(items_with_.size()) - 1; }

 private:
  uint64_t& BitsOf(int32_t item) {
    const auto at = static_cast<size_t>(item);
    return bits_[static_cast<size_t>(counts_[at]) * words_ + at / 64];
  }

  std::vector<int32_t> counts_;      // by item
  std::vector<int32_t> items_with_;  // by count
  size_t words_ = 0;                 // of a row
  std::vector<uint64_t> bits_;
};

struct ShelfRange {
  size_t begin = 0;
  size_t end = 0;
};

// The islands, or the workers, of a pool. Most of them hold only one class of each type; their free
// slots are indexed by class.
struct Places {
  struct OfClass {
    std::vector<ShelfRange> ranges;  // of each item, in order
    FreeIndex open;                  // see Shelf
    FreeIndex free;                  // the kept ones too
  };

  std::vector<OfClass> by_class;
  std::vector<std::vector<ShelfRange>> shared;  // by type: where several classes of it lie
  std::vector<int32_t> item_of;                 // by shelf: in its class; -1: it is in `shared`
};

}  // namespace trainyard::core
