// Compares gangs that hosts bound, which are found by the index of free slots, with those that a
// plain scan of all workers finds.
#include "server/core/scheduling/host_caps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

class RandomHosts {
 public:
  explicit RandomHosts(uint64_t seed) : random_(seed), slots_(MakePool(), {}, {}, 4) {
    for (size_t i = 0; i < slots_.classes().size(); ++i) {
      if (Pick(3) == 0) slots_.SetKeeper(static_cast<int32_t>(i), 0, {1 + Pick(4), 0});
    }
  }

  const Slots& slots() const { return slots_; }

  int32_t Pick(int32_t limit) {
    return static_cast<int32_t>(random_() % static_cast<uint64_t>(limit));
  }

  // Changes who holds, claims or keeps some slots.
  void Change() {
    for (int i = 0; i < 6; ++i) {
      const int32_t slot = Pick(slots_.size());
      const bool is_free = slots_.slot(slot).holder == JobId{};
      switch (Pick(4)) {
        case 0:
        case 1:
          slots_.SetHolder(slot, is_free ? JobId{7} : JobId{}, {1 + Pick(5), Pick(9) * kGiB});
          break;
        case 2:
          slots_.SetClaim(slot, Pick(2) == 0 ? JobId{8} : JobId{});
          break;
        default:
          slots_.SetKept(slot, Pick(2) == 0);
      }
    }
  }

  Offer MakeOffer(bool for_seats) {
    Offer offer(slots_.classes().size(), Access::kNone);
    for (size_t i = 0; i < offer.size(); ++i) {
      if (slots_.classes()[i].is_seat != for_seats || Pick(6) == 0) continue;
      offer[i] = Pick(3) == 0 ? Access::kKept : Access::kOpen;
    }
    return offer;
  }

  GangDemand MakeGang(bool for_seats) {
    GangDemand gang;
    gang.is_deviceless = for_seats;
    gang.most = 1 + Pick(for_seats ? 1 : 9);
    gang.least = Pick(2) == 0 ? gang.most : 1 + Pick(gang.most);
    gang.mixed = Pick(5) == 0;
    gang.one_host = gang.most > 1 && Pick(4) == 0;
    gang.spread = Pick(4) == 0;
    gang.resources = {Pick(7), Pick(3) == 0 ? Pick(6) * kGiB : 0};
    if (gang.resources.empty()) gang.resources.cpus = 1;
    return gang;
  }

 private:
  static constexpr int64_t kGiB = int64_t{1} << 30;

  Pool MakePool() {
    std::string text;
    for (int w = 0, workers = 1 + Pick(9); w < workers; ++w) {
      absl::StrAppend(&text, w == 0 ? "" : "; ", "w", w, ":");
      const std::string type = Pick(3) == 0 ? "h200" : "gtx";
      for (int d = 0, devices = 1 + Pick(7); d < devices; ++d) {
        absl::StrAppend(&text, d == 3 ? " |" : "", " ", Pick(9) == 0 ? "titan" : type,
                        Pick(12) == 0 ? "@night" : "", "*", Pick(9) == 0 ? 80 : 40);
      }
    }
    World world(text);
    world.DivideHosts(16);
    return world.pool;
  }

  std::mt19937_64 random_;
  Slots slots_;
};

// Returns how many ranks each worker holds of one type, or of all for kAnyType.
constexpr int32_t kAll = -1;
std::map<int32_t, int32_t> ByWorker(const Slots& slots, const Offer& offer, const GangDemand& gang,
                                    int32_t type) {
  const std::vector<HostAmount> rooms = RoomFor(slots, offer, gang);
  std::map<int32_t, int32_t> free;
  std::map<int32_t, HostAmount> needs;
  for (const Shelf& shelf : slots.shelves()) {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (offer[cls] == Access::kNone) continue;
    const DeviceClass& of = slots.classes()[cls];
    const HostAmount need = slots.NeedOn(gang.resources, of);
    HostAmount& most = needs[shelf.worker];
    most = {std::max(most.cpus, need.cpus), std::max(most.memory_bytes, need.memory_bytes)};
    if (type != kAll && of.type != type) continue;
    for (int32_t slot = shelf.begin; slot < shelf.end; ++slot) {
      free[shelf.worker] += slots.IsFree(slot, offer[cls]);
    }
  }
  for (auto& [worker, count] : free) {
    count = std::min(count, RanksIn(rooms[static_cast<size_t>(worker)], needs[worker]));
  }
  return free;
}

int32_t LargestByScan(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  int32_t largest = 0;
  const auto types = static_cast<int32_t>(slots.types().size());
  for (int32_t type = gang.mixed ? kAll : 0; type < (gang.mixed ? 0 : types); ++type) {
    int32_t sum = 0;
    for (const auto& [worker, count] : ByWorker(slots, offer, gang, type)) {
      sum = gang.one_host ? std::max(sum, count) : sum + count;
    }
    largest = std::max(largest, sum);
  }
  return largest < gang.least ? 0 : std::min(largest, gang.most);
}

// Returns the workers that a gang of `count` of one type is packed on: the one that it fills best
// or, if none holds it, those with the most, and the one that the rest fills best.
std::map<int32_t, int32_t> PackByScan(std::map<int32_t, int32_t> free, int32_t count) {
  std::map<int32_t, int32_t> packed;
  while (count > 0) {
    int32_t best = -1;
    const auto is_better = [&](int32_t more, int32_t than) {
      if ((more >= count) != (than >= count)) return more >= count;
      return more >= count ? more < than : more > than;
    };
    for (const auto& [worker, ranks] : free) {
      if (ranks > 0 && (best < 0 || is_better(ranks, free[best]))) best = worker;
    }
    packed[best] = std::min(count, free[best]);
    count -= packed[best];
    free.erase(best);
  }
  return packed;
}

// Returns true if some island holds a gang of `count` of a type.
bool FitsOnAnIsland(const Slots& slots, const Offer& offer,
                    const std::map<int32_t, int32_t>& by_worker, int32_t type, int32_t count) {
  std::map<std::pair<int32_t, int32_t>, int32_t> free;
  for (const Shelf& shelf : slots.shelves()) {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (offer[cls] == Access::kNone || slots.classes()[cls].type != type) continue;
    for (int32_t slot = shelf.begin; slot < shelf.end; ++slot) {
      free[{shelf.worker, shelf.island}] += slots.IsFree(slot, offer[cls]);
    }
  }
  return std::any_of(free.begin(), free.end(), [&](const auto& island) {
    return std::min(island.second, by_worker.at(island.first.first)) >= count;
  });
}

TEST(HostCaps, TheIndexFindsWhatAScanFinds) {
  int placed = 0;
  int on_islands = 0;
  int refused = 0;
  int packed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    RandomHosts hosts(seed);
    const Slots& slots = hosts.slots();
    for (int step = 0; step < 30; ++step) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", step));
      hosts.Change();
      const bool for_seats = hosts.Pick(4) == 0;
      const Offer offer = hosts.MakeOffer(for_seats);
      const GangDemand gang = hosts.MakeGang(for_seats);
      const int32_t largest = LargestByScan(slots, offer, gang);
      ASSERT_EQ(LargestGang(slots, offer, gang), largest);
      const std::vector<int32_t> picked = PickSlots(slots, offer, gang);
      ASSERT_EQ(static_cast<int32_t>(picked.size()), largest);
      ++(largest == 0 ? refused : placed);
      std::map<int32_t, int32_t> on;
      int32_t type = kAll;
      for (const int32_t slot : picked) {
        const Shelf& shelf = slots.ShelfOf(slot);
        ASSERT_TRUE(slots.IsFree(slot, offer[static_cast<size_t>(shelf.cls)]));
        ++on[shelf.worker];
        type = slots.ClassOf(slot).type;
      }
      std::map<int32_t, int32_t> free = ByWorker(slots, offer, gang, gang.mixed ? kAll : type);
      for (const auto& [worker, ranks] : on) ASSERT_LE(ranks, free[worker]);
      // A gang that fits on one island goes to the island that it fills best instead.
      if (largest > 0 && !gang.mixed && !gang.spread && !for_seats &&
          FitsOnAnIsland(slots, offer, free, type, largest)) {
        std::set<std::pair<int32_t, int32_t>> islands;
        for (const int32_t slot : picked) {
          islands.emplace(slots.ShelfOf(slot).worker, slots.ShelfOf(slot).island);
        }
        ASSERT_EQ(islands.size(), 1U);
        ++on_islands;
      }
      if (largest < 4 || gang.mixed || gang.spread) continue;
      const std::map<int32_t, int32_t> by_scan = PackByScan(free, largest);
      EXPECT_EQ(on.size(), by_scan.size());
      if (largest > 4) {
        ASSERT_EQ(on, by_scan);
        ++packed;
      }
    }
  }
  EXPECT_GT(placed, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(packed, 100);
  EXPECT_GT(on_islands, 500);
}

TEST(HostCaps, AnIslandIsFoundOnAWorkerOfSeveralClassesOfOneType) {
  // Some devices are reserved, so no worker is indexed by a class; their islands are.
  World world(
      "w0: gtx@night | gtx gtx gtx gtx; w1: gtx@night gtx@night gtx@night gtx@night | gtx gtx gtx");
  world.DivideHosts(16);
  const Slots slots(world.pool, {}, {}, 4);
  GangDemand gang;
  gang.least = 3;
  gang.most = 3;
  gang.resources.cpus = 4;
  Offer offer(slots.classes().size(), Access::kNone);
  for (size_t i = 0; i < offer.size(); ++i) {
    if (!slots.classes()[i].is_seat) offer[i] = Access::kOpen;
  }
  const std::vector<int32_t> picked = PickSlots(slots, offer, gang);
  ASSERT_EQ(picked.size(), 3U);
  for (const int32_t slot : picked) {
    EXPECT_EQ(slots.ShelfOf(slot).worker, 1);
    EXPECT_EQ(slots.ShelfOf(slot).island, 1) << "the gang fills this island best";
  }
}

}  // namespace
}  // namespace trainyard::core
