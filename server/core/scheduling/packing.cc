// Picks the slots of a gang: on one island or worker if the gang fits there, else on as few workers
// as possible.
#include "server/core/scheduling/packing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace trainyard::core {
namespace {

constexpr int32_t kAnyType = -1;

// The free slots of an island or of a worker, as a range of shelves.
struct Group {
  size_t begin = 0;
  size_t end = 0;
  int32_t free = 0;  // 0 means that there is no such group
};

// This group comes before all others in the order of Follows.
constexpr Group kBeforeAll{0, 0, std::numeric_limits<int32_t>::max()};

// Orders groups by their free slots, the most first, and equal ones by their position.
bool Follows(const Group& group, const Group& last) {
  return group.free < last.free || (group.free == last.free && group.begin > last.begin);
}

// The slots that a gang may have.
struct View {
  const Slots& slots;
  const Offer& offer;
  int32_t type;

  bool IsOffered(size_t cls) const {
    return offer[cls] != Access::kNone && (type == kAnyType || slots.classes()[cls].type == type);
  }

  int32_t FreeOn(const Shelf& shelf) const {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (shelf.open + shelf.kept == 0 || !IsOffered(cls)) return 0;
    return shelf.open + (offer[cls] == Access::kKept ? shelf.kept : 0);
  }

  // Returns the islands or workers in the range of shelves that have free slots.
  std::vector<Group> Groups(bool by_island, size_t begin, size_t end) const {
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
    return groups;
  }
};

// The groups to choose from.
class Supply {
 public:
  Supply(const View& view, std::vector<Group> groups) : view_(view), groups_(std::move(groups)) {}

  // Takes all islands, or all workers. Those that hold only one class of a type are found by the
  // index.
  Supply(const View& view, bool by_island) : view_(view) {
    if (view.type == kAnyType) {
      groups_ = view.Groups(by_island, 0, view.slots.shelves().size());
      return;
    }
    places_ = by_island ? &view.slots.islands() : &view.slots.workers();
    for (const ShelfRange& range : places_->shared[static_cast<size_t>(view.type)]) {
      Group group{range.begin, range.end, 0};
      for (size_t i = range.begin; i < range.end; ++i) {
        group.free += view.FreeOn(view.slots.shelves()[i]);
      }
      if (group.free > 0) groups_.push_back(group);
    }
  }

  // Returns the group with the fewest free slots that follows `last` and has `count`; among equal
  // ones the first.
  Group Tightest(int32_t count, const Group& last) const {
    Group best;
    const auto keep_better = [&best](const Group& group) {
      if (best.free == 0 || group.free < best.free ||
          (group.free == best.free && group.begin < best.begin)) {
        best = group;
      }
    };
    ForIndices([&](const Places::OfClass& of, const FreeIndex& index) {
      int32_t most = std::min(last.free, index.largest());
      if (best.free > 0) most = std::min(most, best.free);
      Group group;
      for (int32_t free = count; free <= most && group.free == 0; ++free) {
        group = Find(of, index, free, last);
      }
      if (group.free > 0) keep_better(group);
    });
    for (const Group& group : groups_) {
      if (group.free >= count && Follows(group, last)) keep_better(group);
    }
    return best;
  }

  // Returns the group that follows `last`.
  Group Fullest(const Group& last) const {
    Group best;
    const auto keep_better = [&best](const Group& group) {
      if (best.free == 0 || Follows(best, group)) best = group;
    };
    ForIndices([&](const Places::OfClass& of, const FreeIndex& index) {
      int32_t free = std::min(last.free, index.largest());
      Group group;
      for (; free >= std::max(best.free, 1) && group.free == 0; --free) {
        group = Find(of, index, free, last);
      }
      if (group.free > 0) keep_better(group);
    });
    for (const Group& group : groups_) {
      if (Follows(group, last)) keep_better(group);
    }
    return best;
  }

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
    for (size_t cls = 0; cls < view_.offer.size(); ++cls) {
      if (!view_.IsOffered(cls)) continue;
      const Places::OfClass& of = places_->by_class[cls];
      visit(of, view_.offer[cls] == Access::kKept ? of.free : of.open);
    }
  }

  // Returns the first group of the class that follows `last` and has this many free slots.
  static Group Find(const Places::OfClass& of, const FreeIndex& index, int32_t free,
                    const Group& last) {
    int32_t from = 0;
    if (free == last.free) {
      const auto next = std::upper_bound(
          of.ranges.begin(), of.ranges.end(), last.begin,
          [](size_t begin, const ShelfRange& range) { return begin < range.begin; });
      from = static_cast<int32_t>(next - of.ranges.begin());
    }
    const int32_t item = index.Find(free, from);
    if (item < 0) return {};
    const ShelfRange& range = of.ranges[static_cast<size_t>(item)];
    return {range.begin, range.end, free};
  }

  const View& view_;
  const Places* places_ = nullptr;
  std::vector<Group> groups_;  // the groups that are not in the index
};

class Picker {
 public:
  Picker(const Slots& slots, const Offer& offer, int32_t type) : view_{slots, offer, type} {}

  // Packs on the island, else on the worker, that `count` slots fill best; else on few workers.
  std::vector<int32_t> Pack(int32_t count) const {
    std::vector<int32_t> picked;
    picked.reserve(static_cast<size_t>(count));
    const Group island = Supply(view_, /*by_island=*/true).Tightest(count, kBeforeAll);
    if (island.free > 0) {
      Take(island, count, picked);
      return picked;
    }
    const Supply workers(view_, /*by_island=*/false);
    workers.Split(count,
                  [&](const Group& worker, int32_t share) { TakeByIsland(worker, share, picked); });
    return picked;
  }

  std::vector<int32_t> Spread(int32_t count) const {
    const Supply supply(view_, /*by_island=*/false);
    std::vector<Group> workers;
    for (Group next = supply.Fullest(kBeforeAll);
         next.free > 0 && workers.size() < static_cast<size_t>(count);
         next = supply.Fullest(next)) {
      workers.push_back(next);
    }
    std::vector<int32_t> shares(workers.size(), 0);
    int32_t left = count;
    while (left > 0) {  // each round gives one more slot to each worker that still has a free one
      for (size_t i = 0; i < workers.size() && left > 0; ++i) {
        if (shares[i] == workers[i].free) continue;
        ++shares[i];
        --left;
      }
    }
    std::vector<int32_t> picked;
    picked.reserve(static_cast<size_t>(count));
    for (size_t i = 0; i < workers.size(); ++i) TakeByIsland(workers[i], shares[i], picked);
    return picked;
  }

 private:
  void TakeByIsland(const Group& group, int32_t count, std::vector<int32_t>& picked) const {
    const Supply islands(view_, view_.Groups(/*by_island=*/true, group.begin, group.end));
    islands.Split(count, [&](const Group& island, int32_t share) { Take(island, share, picked); });
  }

  void Take(const Group& group, int32_t count, std::vector<int32_t>& picked) const {
    for (size_t i = group.begin; i < group.end && count > 0; ++i) {
      const Shelf& shelf = view_.slots.shelves()[i];
      if (view_.FreeOn(shelf) == 0) continue;
      const Access access = view_.offer[static_cast<size_t>(shelf.cls)];
      for (int32_t slot = shelf.begin; slot < shelf.end && count > 0; ++slot) {
        if (!view_.slots.IsFree(slot, access)) continue;
        picked.push_back(slot);
        --count;
      }
    }
  }

  const View view_;
};

size_t WorkersOf(const Slots& slots, const std::vector<int32_t>& picked) {
  size_t workers = 0;
  for (size_t i = 0; i < picked.size(); ++i) {
    if (i == 0 || slots.ShelfOf(picked[i]).worker != slots.ShelfOf(picked[i - 1]).worker) ++workers;
  }
  return workers;
}

// Calls `count` for each type.
using TypeCounts = absl::InlinedVector<int32_t, 16>;
template <typename CountClass>
TypeCounts ByType(const Slots& slots, const Offer& offer, CountClass count) {
  TypeCounts counts(slots.types().size(), 0);
  for (size_t i = 0; i < offer.size(); ++i) {
    if (offer[i] == Access::kNone) continue;
    const DeviceClass& cls = slots.classes()[i];
    counts[static_cast<size_t>(cls.type)] += count(cls, offer[i]);
  }
  return counts;
}

TypeCounts FreeByType(const Slots& slots, const Offer& offer) {
  return ByType(slots, offer, [](const DeviceClass& cls, Access access) {
    return cls.open + (access == Access::kKept ? cls.kept : 0);
  });
}

int32_t MostOf(const TypeCounts& counts, bool mixed) {
  int32_t most = 0;
  for (const int32_t count : counts) most = mixed ? most + count : std::max(most, count);
  return most;
}

}  // namespace

int32_t LargestGang(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  const int32_t free = MostOf(FreeByType(slots, offer), gang.mixed);
  return free < gang.least ? 0 : std::min(free, gang.most);
}

bool CouldHold(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  const auto total = [](const DeviceClass& cls, Access) { return cls.total; };
  return MostOf(ByType(slots, offer, total), gang.mixed) >= gang.least;
}

std::vector<int32_t> PickSlots(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  const TypeCounts free = FreeByType(slots, offer);
  const int32_t most_of_one = std::min(MostOf(free, /*mixed=*/false), gang.most);
  // A gang that may be mixed is mixed only if that makes it larger.
  if (gang.mixed && most_of_one < gang.most) {
    const int32_t count = std::min(MostOf(free, /*mixed=*/true), gang.most);
    if (count < gang.least) return {};
    const Picker picker(slots, offer, kAnyType);
    return gang.spread ? picker.Spread(count) : picker.Pack(count);
  }
  if (most_of_one < gang.least) return {};
  std::vector<int32_t> best;
  for (size_t type = 0; type < free.size(); ++type) {
    if (free[type] < most_of_one) continue;
    const Picker picker(slots, offer, static_cast<int32_t>(type));
    std::vector<int32_t> picked =
        gang.spread ? picker.Spread(most_of_one) : picker.Pack(most_of_one);
    const auto is_better = [&] {
      const size_t workers = WorkersOf(slots, picked);
      const size_t least = WorkersOf(slots, best);
      return gang.spread ? workers > least : workers < least;
    };
    if (best.empty() || is_better()) best = std::move(picked);
  }
  return best;
}

std::vector<RankPlacement> RanksOn(const Slots& slots, const Pool& pool,
                                   const std::vector<int32_t>& picked) {
  std::vector<RankPlacement> ranks;
  ranks.reserve(picked.size());
  for (const int32_t slot : picked) {
    DeviceKey key = slots.KeyOf(pool, slot);
    ranks.push_back(
        {static_cast<int32_t>(ranks.size()), std::move(key.first), std::move(key.second)});
  }
  return ranks;
}

}  // namespace trainyard::core
