// Indexes how many free slots each island and worker has, so that the one that a gang fills best is
// found without looking at all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard::core {

// Finds items, which are numbered from 0, by a count that each of them has. There is a row of bits
// for each count.
class FreeIndex {
 public:
  // Makes the index. No count ever becomes larger than `largest`.
  FreeIndex(std::vector<int32_t> counts, int32_t largest);

  void Change(int32_t item, int32_t by);
  // Returns the first item from `from` on that has this count, or -1.
  int32_t Find(int32_t count, int32_t from) const {
    const auto row = static_cast<size_t>(count);
    return items_with_[row] == 0 ? -1 : FindInRow(row, from);
  }
  int32_t largest() const { return static_cast<int32_t>(items_with_.size()) - 1; }

 private:
  int32_t FindInRow(size_t row, int32_t from) const;
  uint64_t& BitsOf(int32_t item) {
    const auto at = static_cast<size_t>(item);
    return bits_[static_cast<size_t>(counts_[at]) * words_ + at / 64];
  }

  std::vector<int32_t> counts_;      // by item
  std::vector<int32_t> items_with_;  // by count
  size_t words_ = 0;                 // the length of a row
  std::vector<uint64_t> bits_;
};

struct ShelfRange {
  size_t begin = 0;
  size_t end = 0;
};

// The islands, or the workers, of a pool. Most of them hold only one class of each type; their free
// slots are indexed by class. A type of several classes has an index of them all as well, because
// most jobs may have every class of a type, and there may be as many classes as workers.
struct Places {
  struct Indexed {
    std::vector<ShelfRange> ranges;  // of each item, in order
    FreeIndex open;                  // see Shelf
    FreeIndex free;                  // includes the kept ones
  };

  std::vector<Indexed> by_class;
  std::vector<Indexed> by_type;  // without items if the type has only one class
  // By type: the items on which several classes of the type lie.
  std::vector<std::vector<ShelfRange>> shared;
  // By shelf: the item in its class, or -1 if the shelf is in `shared`; and the item in its type,
  // or -1 if the type has only one class.
  std::vector<int32_t> item_of;
  std::vector<int32_t> item_in_type;
};

}  // namespace trainyard::core
