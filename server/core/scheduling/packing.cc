// Picks the slots of a gang: on one island or worker if the gang fits there, else on as few workers
// as possible.
#include "server/core/scheduling/packing.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "server/core/scheduling/free_groups.h"
#include "server/core/scheduling/host_caps.h"

namespace trainyard::core {
namespace {

class Picker {
 public:
  Picker(const Slots& slots, const Offer& offer, int32_t type, const HostCaps* caps)
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

// Returns the number of ranks that the free slots of each type hold, where hosts bound them too, up
// to `gang.most`. A type that does not hold `gang.least` may count as 0. If types may be mixed, it
// is the number of all types together, as that of the first.
TypeCounts FittingByType(const Slots& slots, const Offer& offer, const GangDemand& gang, bool mixed,
                         const HostCaps& caps) {
  TypeCounts counts = FreeByType(slots, offer);
  if (mixed) {
    const View view{slots, offer, kAnyType, &caps};
    counts.assign(counts.size(), 0);
    if (!counts.empty()) counts[0] = Supply(view, /*by_island=*/false).Sum(gang.most);
    return counts;
  }
  for (size_t type = 0; type < counts.size(); ++type) {
    if (counts[type] < gang.least) {
      counts[type] = 0;
      continue;
    }
    const View view{slots, offer, static_cast<int32_t>(type), &caps};
    counts[type] = Supply(view, /*by_island=*/false).Sum(gang.most);
  }
  return counts;
}

int32_t MostOf(const TypeCounts& counts, bool mixed) {
  int32_t most = 0;
  for (const int32_t count : counts) most = mixed ? most + count : std::max(most, count);
  return most;
}

// Returns the most free slots that one worker has of one type, or of all types for a mixed gang,
// and at most the cap of the worker if there are `caps`.
int32_t FreeOnOneWorker(const Slots& slots, const Offer& offer, bool mixed, const HostCaps* caps) {
  const auto free_of = [&](int32_t type) {
    const View view{slots, offer, type, caps};
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

// Returns true if the hosts of the view could hold the gang if all of its slots were free. It stops
// at the host that completes the gang.
bool HostsCouldHold(const View& view, const GangDemand& gang) {
  const Slots& slots = view.slots;
  int64_t ranks = 0;
  const auto suffices_with = [&](const ShelfRange& range) {
    int32_t on_host = 0;
    for (size_t i = range.begin; i < range.end; ++i) {
      const Shelf& shelf = slots.shelves()[i];
      if (view.IsOffered(static_cast<size_t>(shelf.cls))) on_host += shelf.end - shelf.begin;
    }
    if (on_host == 0) return false;
    const int32_t worker = slots.shelves()[range.begin].worker;
    const HostRoom& host = slots.hosts()[static_cast<size_t>(worker)];
    if (host.is_divided) {
      const HostAmount need = NeedOnWorker(slots, view.offer, gang.resources, worker);
      on_host = std::min(on_host, RanksIn(host.all, need));
    }
    ranks += on_host;
    return ranks >= gang.least;
  };
  const auto suffice = [&](const std::vector<ShelfRange>& ranges) {
    return std::any_of(ranges.begin(), ranges.end(), suffices_with);
  };
  if (view.type == kAnyType) {
    return std::any_of(slots.hosts().begin(), slots.hosts().end(),
                       [&](const HostRoom& host) { return suffices_with(host.shelves); });
  }
  for (size_t cls = 0; cls < view.offer.size(); ++cls) {
    if (view.IsOffered(cls) && suffice(slots.workers().by_class[cls].ranges)) return true;
  }
  return suffice(slots.workers().shared[static_cast<size_t>(view.type)]);
}

}  // namespace

int32_t MostFreeOnOneWorker(const Slots& slots, const Offer& offer, bool mixed) {
  return FreeOnOneWorker(slots, offer, mixed, nullptr);
}

int32_t LargestGang(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  int32_t free = MostOf(FreeByType(slots, offer), gang.mixed);
  std::optional<HostCaps> caps;
  if (free >= gang.least && IsBoundByHosts(slots, gang)) {
    caps.emplace(slots, offer, gang);
    free = MostOf(FittingByType(slots, offer, gang, gang.mixed, *caps), /*mixed=*/false);
  }
  if (gang.one_host && free >= gang.least) {
    free = FreeOnOneWorker(slots, offer, gang.mixed, caps.has_value() ? &*caps : nullptr);
  }
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
  std::optional<HostCaps> caps;
  if (IsBoundByHosts(slots, gang)) {
    caps.emplace(slots, offer, gang);
    free = FittingByType(slots, offer, gang, /*mixed=*/false, *caps);
  }
  const HostCaps* const bound = caps.has_value() ? &*caps : nullptr;
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
  if (gang.mixed) return HostsCouldHold(View{slots, offer, kAnyType}, gang);
  for (size_t type = 0; type < slots.types().size(); ++type) {
    if (HostsCouldHold(View{slots, offer, static_cast<int32_t>(type)}, gang)) return true;
  }
  return false;
}

std::vector<int32_t> PickSlots(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  if (gang.one_host) return PickOnOneWorker(slots, offer, gang);
  TypeCounts free = FreeByType(slots, offer);
  std::optional<HostCaps> caps;
  int32_t of_all = MostOf(free, gang.mixed);
  if (IsBoundByHosts(slots, gang)) {
    if (of_all < gang.least) return {};
    caps.emplace(slots, offer, gang);
    free = FittingByType(slots, offer, gang, /*mixed=*/false, *caps);
    if (gang.mixed) {
      of_all = MostOf(FittingByType(slots, offer, gang, /*mixed=*/true, *caps), /*mixed=*/false);
    }
  }
  const HostCaps* const bound = caps.has_value() ? &*caps : nullptr;
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
    // No type packs it closer than on one worker.
    if (!gang.spread && WorkersOf(slots, best) == 1) break;
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
