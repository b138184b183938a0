// Finds the islands and the workers that a gang fills best, among those with free slots for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "server/core/scheduling/host_caps.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

inline constexpr int32_t kAnyType = -1;

// The free slots of an island or of a worker, as a range of shelves.
struct Group {
  size_t begin = 0;
  size_t end = 0;
  int32_t free = 0;  // 0 means that there is no such group
};

// This group comes before all others in the order of Follows.
inline constexpr Group kBeforeAll{0, 0, std::numeric_limits<int32_t>::max()};

// Orders groups by their free slots, the most first, and equal ones by their position.
inline bool Follows(const Group& group, const Group& last) {
  return group.free < last.free || (group.free == last.free && group.begin > last.begin);
}

// The slots that a gang may have. It borrows everything.
struct View {
  const Slots& slots;
  const Offer& offer;
  int32_t type;
  const HostCaps* caps = nullptr;  // null if only the free slots matter

  bool IsOffered(size_t cls) const {
    return offer[cls] != Access::kNone && (type == kAnyType || slots.classes()[cls].type == type);
  }

  int32_t FreeOn(const Shelf& shelf) const {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (shelf.open + shelf.kept == 0 || !IsOffered(cls)) return 0;
    return shelf.open + (offer[cls] == Access::kKept ? shelf.kept : 0);
  }

  // Returns the smaller of `free` and what the host of these shelves can hold.
  int32_t Bound(size_t begin, int32_t free) const {
    return caps == nullptr || free == 0 ? free
                                        : std::min(free, caps->Of(slots.shelves()[begin].worker));
  }

  // Returns the islands or workers in the range of shelves that have free slots.
  std::vector<Group> Groups(bool by_island, size_t begin, size_t end) const;
};

// The groups to choose from. It borrows the view.
class Supply {
 public:
  Supply(const View& view, std::vector<Group> groups) : view_(view), groups_(std::move(groups)) {}

  // Takes all islands, or all workers. Those that hold only one class of a type are found by the
  // index of the class or, if the gang may have every class of the type alike, by that of the type.
  Supply(const View& view, bool by_island);

  // Returns the group with the fewest free slots that follows `last` and has `count`; among equal
  // ones the first.
  Group Tightest(int32_t count, const Group& last) const;

  // Returns the group that follows `last`.
  Group Fullest(const Group& last) const;

  // Returns how many free slots all groups have together, but at most `limit`, at which it stops
  // to count.
  int32_t Sum(int32_t limit) const;

  // Splits `count` over groups, the one with the most free slots first, until the rest fits on one.
  // No smaller number of groups could hold it.
  template <typename Give>
  void Split(int32_t count, Give give) const {
    Group last = kBeforeAll;
    while (count > 0) {
      Group next = Tightest(count, last);
      if (next.free == 0) next = Fullest(last);
      const int32_t share = std::min(count, next.free);
      give(next, share);
      count -= share;
      last = next;
    }
  }

 private:
  template <typename Visit>
  void ForIndices(Visit visit) const {
    if (places_ == nullptr) return;
    if (of_type_ != Access::kNone) {
      const Places::Indexed& of = places_->by_type[static_cast<size_t>(view_.type)];
      visit(size_t{0}, of, of_type_ == Access::kKept ? of.free : of.open);
      return;
    }
    for (const int32_t number : view_.slots.ClassesOf(view_.type)) {
      const auto cls = static_cast<size_t>(number);
      if (view_.offer[cls] == Access::kNone) continue;
      if (view_.caps != nullptr && !view_.caps->MayHold(cls)) continue;
      const Places::Indexed& of = places_->by_class[cls];
      visit(cls, of, view_.offer[cls] == Access::kKept ? of.free : of.open);
    }
  }

  // Returns an item of the index, which has this many free slots of the class.
  Group GroupOf(size_t cls, const ShelfRange& range, int32_t free) const {
    if (view_.caps == nullptr) return {range.begin, range.end, free};
    const int32_t worker = view_.slots.shelves()[range.begin].worker;
    return {range.begin, range.end, std::min(free, view_.caps->Of(worker, cls))};
  }

  // Returns the first item of the class with this many free slots that may follow `last`. Where
  // hosts bound the gang, any item may.
  int32_t First(const Places::Indexed& of, const FreeIndex& index, int32_t free,
                const Group& last) const {
    if (view_.caps != nullptr || free != last.free) return index.Find(free, 0);
    const auto next =
        std::upper_bound(of.ranges.begin(), of.ranges.end(), last.begin,
                         [](size_t begin, const ShelfRange& range) { return begin < range.begin; });
    return index.Find(free, static_cast<int32_t>(next - of.ranges.begin()));
  }

  const View& view_;
  // Returns the access that the gang has to every class of its type, or kNone if they differ, if
  // there is only one class, or if hosts bound the gang, which depends on the class.
  Access AccessToType() const;

  const Places* places_ = nullptr;
  Access of_type_ = Access::kNone;
  std::vector<Group> groups_;  // the groups that are not in the index
};

}  // namespace trainyard::core
