// Searches the index of free slots, and what is not in it group by group. Where hosts bound a gang,
// a group has at most as many slots for it as its index says. So rows of the index are read until
// no later item can be better.
#include "server/core/scheduling/free_groups.h"

namespace trainyard::core {

std::vector<Group> View::Groups(bool by_island, size_t begin, size_t end) const {
  const std::vector<Shelf>& shelves = slots.shelves();
  std::vector<Group> groups;
  for (size_t i = begin; i < end; ++i) {
    const int32_t free = FreeOn(shelves[i]);
    if (free == 0) continue;
    if (!groups.empty()) {
      const Shelf& last = shelves[groups.back().begin];
      if (last.worker == shelves[i].worker && (!by_island || last.island == shelves[i].island)) {
        groups.back().free += free;
        groups.back().end = i + 1;
        continue;
      }
    }
    groups.push_back({i, i + 1, free});
  }
  if (caps == nullptr) return groups;
  for (Group& group : groups) group.free = Bound(group.begin, group.free);
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const Group& group) { return group.free == 0; }),
               groups.end());
  return groups;
}

Supply::Supply(const View& view, bool by_island) : view_(view) {
  if (view.type == kAnyType) {
    groups_ = view.Groups(by_island, 0, view.slots.shelves().size());
    return;
  }
  places_ = by_island ? &view.slots.islands() : &view.slots.workers();
  of_type_ = AccessToType();
  for (const ShelfRange& range : places_->shared[static_cast<size_t>(view.type)]) {
    int32_t free = 0;
    for (size_t i = range.begin; i < range.end; ++i) free += view.FreeOn(view.slots.shelves()[i]);
    const Group group{range.begin, range.end, view.Bound(range.begin, free)};
    if (group.free > 0) groups_.push_back(group);
  }
}

Access Supply::AccessToType() const {
  const std::vector<int32_t>& classes = view_.slots.ClassesOf(view_.type);
  if (view_.caps != nullptr || classes.size() == 1) return Access::kNone;
  Access all = Access::kNone;
  for (const int32_t cls : classes) {
    const auto at = static_cast<size_t>(cls);
    Access access = view_.offer[at];
    if (access == Access::kNone) return Access::kNone;
    if (view_.slots.classes()[at].kept == 0) continue;  // both accesses are the same
    if (all != Access::kNone && access != all) return Access::kNone;
    all = access;
  }
  return all == Access::kNone ? Access::kOpen : all;
}

Group Supply::Tightest(int32_t count, const Group& last) const {
  Group best;
  const auto keep_better = [&](const Group& group) {
    if (group.free < count || !Follows(group, last)) return;
    if (best.free == 0 || group.free < best.free ||
        (group.free == best.free && group.begin < best.begin)) {
      best = group;
    }
  };
  const bool is_bound = view_.caps != nullptr;
  ForIndices([&](size_t cls, const Places::Indexed& of, const FreeIndex& index) {
    const int32_t most = is_bound ? index.largest() : std::min(last.free, index.largest());
    for (int32_t free = count; free <= most; ++free) {
      const int32_t least = is_bound ? count : free;  // no item of the row has fewer for the gang
      if (best.free > 0 && best.free < least) break;
      for (int32_t i = First(of, index, free, last); i >= 0; i = index.Find(free, i + 1)) {
        const ShelfRange& range = of.ranges[static_cast<size_t>(i)];
        if (best.free == least && best.begin <= range.begin) break;
        keep_better(GroupOf(cls, range, free));
      }
    }
  });
  for (const Group& group : groups_) keep_better(group);
  return best;
}

Group Supply::Fullest(const Group& last) const {
  Group best;
  const auto keep_better = [&](const Group& group) {
    if (Follows(group, last) && (best.free == 0 || Follows(best, group))) best = group;
  };
  const bool is_bound = view_.caps != nullptr;
  ForIndices([&](size_t cls, const Places::Indexed& of, const FreeIndex& index) {
    int32_t free = is_bound ? index.largest() : std::min(last.free, index.largest());
    for (; free >= std::max(best.free, 1); --free) {
      for (int32_t i = First(of, index, free, last); i >= 0; i = index.Find(free, i + 1)) {
        const ShelfRange& range = of.ranges[static_cast<size_t>(i)];
        if (best.free == free && best.begin <= range.begin) break;
        const Group group = GroupOf(cls, range, free);
        if (group.free > 0) keep_better(group);
      }
    }
  });
  for (const Group& group : groups_) keep_better(group);
  return best;
}

int32_t Supply::Sum(int32_t limit) const {
  int32_t sum = 0;
  for (const Group& group : groups_) {
    sum += std::min(group.free, limit - sum);
  }
  ForIndices([&](size_t cls, const Places::Indexed& of, const FreeIndex& index) {
    for (int32_t free = index.largest(); free > 0 && sum < limit; --free) {
      for (int32_t i = index.Find(free, 0); i >= 0 && sum < limit; i = index.Find(free, i + 1)) {
        const Group group = GroupOf(cls, of.ranges[static_cast<size_t>(i)], free);
        sum += std::min(group.free, limit - sum);
      }
    }
  });
  return sum;
}

}  // namespace trainyard::core
