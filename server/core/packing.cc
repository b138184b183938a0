#include "server/core/packing.h"

#include <algorithm>

namespace trainyard::core {
namespace {

constexpr int32_t kAnyType = -1;

// Free slots that lie together: of an island or of a worker, as a range of shelves.
struct Group {
  size_t begin = 0;
  size_t end = 0;
  int32_t free = 0;
};

class Picker {
 public:
  Picker(const Slots& slots, const Offer& offer, int32_t type)
      : slots_(slots), offer_(offer), type_(type) {}

  std::vector<int32_t> Pack(int32_t count) const {
    Group island;
    Group worker;
    if (const Group* best = BestGroups(count, island, worker); best != nullptr) {
      std::vector<int32_t> picked;
      TakeByIsland(*best, count, picked);
      return picked;
    }
    return PackOver(Groups(/*by_island=*/false, 0, slots_.shelves().size()), count);
  }

  std::vector<int32_t> Spread(int32_t count) const {
    std::vector<Group> workers = Groups(/*by_island=*/false, 0, slots_.shelves().size());
    std::stable_sort(workers.begin(), workers.end(),
                     [](const Group& a, const Group& b) { return a.free > b.free; });
    if (workers.size() > static_cast<size_t>(count)) workers.resize(static_cast<size_t>(count));
    std::vector<int32_t> shares(workers.size(), 0);
    int32_t left = count;
    while (left > 0) {  // each round gives one more to each worker that has one more
      for (size_t i = 0; i < workers.size() && left > 0; ++i) {
        if (shares[i] == workers[i].free) continue;
        ++shares[i];
        --left;
      }
    }
    std::vector<int32_t> picked;
    for (size_t i = 0; i < workers.size(); ++i) TakeByIsland(workers[i], shares[i], picked);
    return picked;
  }

 private:
  bool IsOffered(size_t cls) const {
    return offer_[cls] != Access::kNone &&
           (type_ == kAnyType || slots_.classes()[cls].type == type_);
  }

  int32_t FreeOn(const Shelf& shelf) const {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (shelf.open + shelf.kept == 0 || !IsOffered(cls)) return 0;
    return shelf.open + (offer_[cls] == Access::kKept ? shelf.kept : 0);
  }

  // The island, else the worker, that `count` slots leave emptiest. Ties go by order.
  const Group* BestGroups(int32_t count, Group& island, Group& worker) const {
    Group here;
    Group around;
    const auto keep_better = [count](const Group& candidate, Group& best) {
      if (candidate.free >= count && (best.free == 0 || candidate.free < best.free)) {
        best = candidate;
      }
    };
    const std::vector<Shelf>& shelves = slots_.shelves();
    for (size_t i = 0; i < shelves.size(); ++i) {
      const bool is_new_worker = i == 0 || shelves[i].worker != shelves[i - 1].worker;
      if (is_new_worker || shelves[i].island != shelves[i - 1].island) {
        keep_better(here, island);
        if (island.free == count) return &island;
        here = {i, i, 0};
      }
      if (is_new_worker) {
        keep_better(around, worker);
        around = {i, i, 0};
      }
      const int32_t free = FreeOn(shelves[i]);
      here.free += free;
      around.free += free;
      here.end = i + 1;
      around.end = i + 1;
    }
    keep_better(here, island);
    keep_better(around, worker);
    if (island.free > 0) return &island;
    return worker.free > 0 ? &worker : nullptr;
  }

  std::vector<Group> Groups(bool by_island, size_t begin, size_t end) const {
    const std::vector<Shelf>& shelves = slots_.shelves();
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

  // Splits `count` over groups: fullest first until the rest fits on one. No smaller number of
  // groups can hold it.
  static std::vector<std::pair<Group, int32_t>> Split(std::vector<Group> groups, int32_t count) {
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.free > b.free; });
    std::vector<std::pair<Group, int32_t>> shares;
    for (size_t next = 0; count > 0; ++next) {
      const Group* last = nullptr;
      for (size_t i = next; i < groups.size(); ++i) {
        if (groups[i].free < count) break;
        if (last == nullptr || groups[i].free < last->free) last = &groups[i];
      }
      const Group& group = last != nullptr ? *last : groups[next];
      const int32_t share = std::min(count, group.free);
      shares.emplace_back(group, share);
      count -= share;
    }
    return shares;
  }

  std::vector<int32_t> PackOver(std::vector<Group> workers, int32_t count) const {
    std::vector<int32_t> picked;
    for (const auto& [worker, share] : Split(std::move(workers), count)) {
      TakeByIsland(worker, share, picked);
    }
    return picked;
  }

  void TakeByIsland(const Group& group, int32_t count, std::vector<int32_t>& picked) const {
    if (group.end - group.begin == 1) return Take(group, count, picked);
    const std::vector<Group> islands = Groups(/*by_island=*/true, group.begin, group.end);
    for (const auto& [island, share] : Split(islands, count)) Take(island, share, picked);
  }

  void Take(const Group& group, int32_t count, std::vector<int32_t>& picked) const {
    for (size_t i = group.begin; i < group.end && count > 0; ++i) {
      const Shelf& shelf = slots_.shelves()[i];
      if (FreeOn(shelf) == 0) continue;
      const Access access = offer_[static_cast<size_t>(shelf.cls)];
      for (int32_t slot = shelf.begin; slot < shelf.end && count > 0; ++slot) {
        if (!slots_.IsFree(slot, access)) continue;
        picked.push_back(slot);
        --count;
      }
    }
  }

  const Slots& slots_;
  const Offer& offer_;
  const int32_t type_;
};

size_t WorkersOf(const Slots& slots, const std::vector<int32_t>& picked) {
  size_t workers = 0;
  for (size_t i = 0; i < picked.size(); ++i) {
    if (i == 0 || slots.ShelfOf(picked[i]).worker != slots.ShelfOf(picked[i - 1]).worker) ++workers;
  }
  return workers;
}

// What `count` gives for each type.
template <typename CountClass>
std::vector<int32_t> ByType(const Slots& slots, const Offer& offer, CountClass count) {
  std::vector<int32_t> counts(slots.types().size(), 0);
  for (size_t i = 0; i < offer.size(); ++i) {
    if (offer[i] == Access::kNone) continue;
    const DeviceClass& cls = slots.classes()[i];
    counts[static_cast<size_t>(cls.type)] += count(cls, offer[i]);
  }
  return counts;
}

std::vector<int32_t> FreeByType(const Slots& slots, const Offer& offer) {
  return ByType(slots, offer, [](const DeviceClass& cls, Access access) {
    return cls.open + (access == Access::kKept ? cls.kept : 0);
  });
}

int32_t MostOf(const std::vector<int32_t>& counts, bool mixed) {
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
  const std::vector<int32_t> free = FreeByType(slots, offer);
  const int32_t most_of_one = std::min(MostOf(free, /*mixed=*/false), gang.most);
  // A gang that may be mixed is so only where that makes it larger.
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
