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
  // By worker, how many ranks its host can hold; null if only the free slots matter.
  const std::vector<int32_t>* caps = nullptr;

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
    std::vector<Group> groups = FreeGroups(by_island, begin, end);
    if (caps == nullptr) return groups;
    for (Group& group : groups) {
      group.free =
          std::min(group.free, (*caps)[static_cast<size_t>(slots.shelves()[group.begin].worker)]);
    }
    groups.erase(std::remove_if(groups.begin(), groups.end(),
                                [](const Group& group) { return group.free <= 0; }),
                 groups.end());
    return groups;
  }

  std::vector<Group> FreeGroups(bool by_island, size_t begin, size_t end) const {
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
    if (view.type == kAnyType || view.caps != nullptr) {
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
  Picker(const Slots& slots, const Offer& offer, int32_t type, const std::vector<int32_t>* caps)
      : view_{slots, offer, type, caps} {}

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

// Returns the number of ranks that the free slots of each type hold, where hosts bound them too. If
// types may be mixed, it is the number of all types together, as that of each.
TypeCounts FittingByType(const Slots& slots, const Offer& offer, bool mixed,
                         const std::vector<int32_t>& caps) {
  TypeCounts counts(slots.types().size(), 0);
  for (size_t type = 0; type < counts.size(); ++type) {
    const View view{slots, offer, mixed ? kAnyType : static_cast<int32_t>(type), &caps};
    for (const Group& worker : view.Groups(/*by_island=*/false, 0, slots.shelves().size())) {
      counts[type] += worker.free;
    }
    if (mixed) break;
  }
  return counts;
}

void Deduct(HostAmount& room, const HostAmount& need, int32_t times) {
  room.cpus -= need.cpus * times;
  room.memory_bytes -= need.memory_bytes * times;
}

// Returns for each worker the most that a rank holds on any of its offered slots. Calls `visit`
// with each shelf of them.
template <typename Visit>
std::vector<HostAmount> NeedsByWorker(const Slots& slots, const Offer& offer,
                                      const HostAmount& resources, Visit visit) {
  std::vector<HostAmount> by_class(slots.classes().size());
  for (size_t i = 0; i < by_class.size(); ++i) {
    if (offer[i] != Access::kNone) by_class[i] = slots.NeedOn(resources, slots.classes()[i]);
  }
  std::vector<HostAmount> needs(slots.hosts().size());
  for (const Shelf& shelf : slots.shelves()) {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (offer[cls] == Access::kNone) continue;
    HostAmount& need = needs[static_cast<size_t>(shelf.worker)];
    need.cpus = std::max(need.cpus, by_class[cls].cpus);
    need.memory_bytes = std::max(need.memory_bytes, by_class[cls].memory_bytes);
    visit(shelf);
  }
  return needs;
}

int32_t MostOf(const TypeCounts& counts, bool mixed) {
  int32_t most = 0;
  for (const int32_t count : counts) most = mixed ? most + count : std::max(most, count);
  return most;
}

// Returns the most free slots that one worker has of one type, or of all types for a mixed gang,
// and at most the `caps` of the worker if these are not empty.
int32_t FreeOnOneWorker(const Slots& slots, const Offer& offer, bool mixed,
                        const std::vector<int32_t>& caps) {
  const auto free_of = [&](int32_t type) {
    const View view{slots, offer, type, caps.empty() ? nullptr : &caps};
    return Supply(view, /*by_island=*/false).Fullest(kBeforeAll).free;
  };
  if (mixed) return free_of(kAnyType);
  int32_t most = 0;
  for (size_t type = 0; type < slots.types().size(); ++type) {
    most = std::max(most, free_of(static_cast<int32_t>(type)));
  }
  return most;
}

// Returns true if some worker could hold the gang if all of its slots were free.
bool CouldHoldOnOneWorker(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  const std::vector<Shelf>& shelves = slots.shelves();
  for (size_t begin = 0, end = 0; begin < shelves.size(); begin = end) {
    const int32_t worker = shelves[begin].worker;
    TypeCounts counts(slots.types().size(), 0);
    HostAmount need;
    for (end = begin; end < shelves.size() && shelves[end].worker == worker; ++end) {
      const auto cls = static_cast<size_t>(shelves[end].cls);
      if (offer[cls] == Access::kNone) continue;
      const DeviceClass& of = slots.classes()[cls];
      counts[static_cast<size_t>(of.type)] += shelves[end].end - shelves[end].begin;
      const HostAmount on_it = slots.NeedOn(gang.resources, of);
      need.cpus = std::max(need.cpus, on_it.cpus);
      need.memory_bytes = std::max(need.memory_bytes, on_it.memory_bytes);
    }
    if (MostOf(counts, gang.mixed) < gang.least) continue;
    const HostRoom& host = slots.hosts()[static_cast<size_t>(worker)];
    if (!host.is_divided || RanksIn(host.all, need) >= gang.least) return true;
  }
  return false;
}

}  // namespace

int32_t MostFreeOnOneWorker(const Slots& slots, const Offer& offer, bool mixed) {
  return FreeOnOneWorker(slots, offer, mixed, {});
}

int32_t RanksIn(const HostAmount& room, const HostAmount& need) {
  int64_t ranks = std::numeric_limits<int32_t>::max();
  if (need.cpus > 0) ranks = std::min<int64_t>(ranks, room.cpus / need.cpus);
  if (need.memory_bytes > 0) ranks = std::min(ranks, room.memory_bytes / need.memory_bytes);
  return static_cast<int32_t>(std::max<int64_t>(ranks, 0));
}

bool IsBoundByHosts(const Slots& slots, const GangDemand& gang) {
  return slots.is_strained() || gang.is_deviceless || !gang.resources.empty();
}

std::vector<HostAmount> RoomFor(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  std::vector<HostAmount> rooms(slots.hosts().size());
  for (size_t i = 0; i < rooms.size(); ++i) {
    const HostRoom& host = slots.hosts()[i];
    rooms[i] = host.all;
    rooms[i] -= host.held;
    rooms[i] -= host.claimed;
  }
  for (const Shelf& shelf : slots.shelves()) {
    const auto cls = static_cast<size_t>(shelf.cls);
    const DeviceClass& of = slots.classes()[cls];
    HostAmount& room = rooms[static_cast<size_t>(shelf.worker)];
    const bool is_lent =
        offer[cls] == Access::kKept || (gang.lent != nullptr && (*gang.lent)[cls] == Access::kKept);
    if (shelf.kept > 0 && of.keeper >= 0 && !is_lent) {
      Deduct(room, slots.NeedOn(of.keeper_resources, of), shelf.kept);
    }
    if (of.reservation.empty() || offer[cls] != Access::kNone) continue;
    if (gang.reservations != nullptr && gang.reservations->count(of.reservation) > 0) continue;
    Deduct(room, of.share, shelf.open);
  }
  return rooms;
}

std::vector<int32_t> RanksThatFit(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  const std::vector<HostAmount> rooms = RoomFor(slots, offer, gang);
  const std::vector<HostAmount> needs =
      NeedsByWorker(slots, offer, gang.resources, [](const Shelf&) {});
  std::vector<int32_t> caps(rooms.size(), std::numeric_limits<int32_t>::max());
  for (size_t i = 0; i < caps.size(); ++i) {
    if (slots.hosts()[i].is_divided) caps[i] = RanksIn(rooms[i], needs[i]);
  }
  return caps;
}

int32_t LargestGang(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  int32_t free = MostOf(FreeByType(slots, offer), gang.mixed);
  std::vector<int32_t> caps;
  if (free >= gang.least && IsBoundByHosts(slots, gang)) {
    caps = RanksThatFit(slots, offer, gang);
    free = MostOf(FittingByType(slots, offer, gang.mixed, caps), /*mixed=*/false);
  }
  if (gang.one_host && free >= gang.least) free = FreeOnOneWorker(slots, offer, gang.mixed, caps);
  return free < gang.least ? 0 : std::min(free, gang.most);
}

namespace {

// A gang that fits on one worker is packed there. Types are mixed only if no worker has as many of
// one.
std::vector<int32_t> PickOnOneWorker(const Slots& slots, const Offer& offer,
                                     const GangDemand& gang) {
  const int32_t count = LargestGang(slots, offer, gang);
  if (count == 0) return {};
  TypeCounts free = FreeByType(slots, offer);
  std::vector<int32_t> caps;
  if (IsBoundByHosts(slots, gang)) {
    caps = RanksThatFit(slots, offer, gang);
    free = FittingByType(slots, offer, /*mixed=*/false, caps);
  }
  const std::vector<int32_t>* const bound = caps.empty() ? nullptr : &caps;
  const auto pack = [&](int32_t type) { return Picker(slots, offer, type, bound).Pack(count); };
  for (size_t type = 0; type < free.size(); ++type) {
    if (free[type] < count) continue;
    std::vector<int32_t> picked = pack(static_cast<int32_t>(type));
    if (WorkersOf(slots, picked) == 1) return picked;
  }
  std::vector<int32_t> picked;
  if (gang.mixed) picked = pack(kAnyType);
  return WorkersOf(slots, picked) == 1 ? picked : std::vector<int32_t>();
}

}  // namespace

bool CouldHold(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  const auto total = [](const DeviceClass& cls, Access) { return cls.total; };
  if (MostOf(ByType(slots, offer, total), gang.mixed) < gang.least) return false;
  if (gang.one_host) return CouldHoldOnOneWorker(slots, offer, gang);
  if (gang.is_deviceless || gang.resources.empty()) return true;
  // One rank fits on each host of the offer, since the classes suit it. Several may not.
  std::vector<TypeCounts> slots_of(slots.hosts().size(), TypeCounts(slots.types().size(), 0));
  const std::vector<HostAmount> needs =
      NeedsByWorker(slots, offer, gang.resources, [&](const Shelf& shelf) {
        const auto type = slots.classes()[static_cast<size_t>(shelf.cls)].type;
        slots_of[static_cast<size_t>(shelf.worker)][static_cast<size_t>(type)] +=
            shelf.end - shelf.begin;
      });
  TypeCounts counts(slots.types().size(), 0);
  int32_t together = 0;
  for (size_t i = 0; i < needs.size(); ++i) {
    const HostRoom& host = slots.hosts()[i];
    const int32_t cap =
        host.is_divided ? RanksIn(host.all, needs[i]) : std::numeric_limits<int32_t>::max();
    for (size_t type = 0; type < counts.size(); ++type) {
      counts[type] += std::min(slots_of[i][type], cap);
    }
    together += std::min(MostOf(slots_of[i], /*mixed=*/true), cap);
  }
  return (gang.mixed ? together : MostOf(counts, /*mixed=*/false)) >= gang.least;
}

std::vector<int32_t> PickSlots(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  if (gang.one_host) return PickOnOneWorker(slots, offer, gang);
  TypeCounts free = FreeByType(slots, offer);
  std::vector<int32_t> caps;
  int32_t of_all = MostOf(free, gang.mixed);
  const bool is_bound = IsBoundByHosts(slots, gang);
  if (is_bound) {
    if (of_all < gang.least) return {};
    caps = RanksThatFit(slots, offer, gang);
    free = FittingByType(slots, offer, /*mixed=*/false, caps);
    if (gang.mixed) {
      of_all = MostOf(FittingByType(slots, offer, /*mixed=*/true, caps), /*mixed=*/false);
    }
  }
  const std::vector<int32_t>* const bound = is_bound ? &caps : nullptr;
  const int32_t most_of_one = std::min(MostOf(free, /*mixed=*/false), gang.most);
  // A gang that may be mixed is mixed only if that makes it larger.
  if (gang.mixed && most_of_one < gang.most) {
    const int32_t count = std::min(of_all, gang.most);
    if (count < gang.least) return {};
    const Picker picker(slots, offer, kAnyType, bound);
    return gang.spread ? picker.Spread(count) : picker.Pack(count);
  }
  if (most_of_one < gang.least) return {};
  std::vector<int32_t> best;
  for (size_t type = 0; type < free.size(); ++type) {
    if (free[type] < most_of_one) continue;
    const Picker picker(slots, offer, static_cast<int32_t>(type), bound);
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
                                   const std::vector<int32_t>& picked,
                                   const HostAmount& resources) {
  std::vector<RankPlacement> ranks;
  ranks.reserve(picked.size());
  for (const int32_t slot : picked) {
    DeviceKey key = slots.KeyOf(pool, slot);
    const DeviceClass& cls = slots.ClassOf(slot);
    if (cls.is_seat) key.second.clear();
    ranks.push_back({static_cast<int32_t>(ranks.size()), std::move(key.first),
                     std::move(key.second), slots.NeedOn(resources, cls)});
  }
  return ranks;
}

}  // namespace trainyard::core
