#include "server/core/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

// Free devices of one worker, in the order in which they are given out.
struct Shelf {
  std::string worker;
  std::vector<std::string> devices;
};

bool Offers(const PoolWorker& worker, const PoolDevice& device) {
  return worker.takes_ranks && device.usable && device.holder == JobId{};
}

// `type` empty: any type.
std::vector<Shelf> FreeDevices(const Pool& pool, const std::string& type,
                               const std::set<DeviceKey>& without) {
  std::vector<Shelf> shelves;
  for (const PoolWorker& worker : pool) {
    Shelf shelf{worker.name, {}};
    for (const PoolDevice& device : worker.devices) {
      if (!Offers(worker, device)) continue;
      if (!type.empty() && device.type != type) continue;
      if (without.count({worker.name, device.name}) > 0) continue;
      shelf.devices.push_back(device.name);
    }
    if (!shelf.devices.empty()) shelves.push_back(std::move(shelf));
  }
  return shelves;
}

// The shelf that `count` ranks leave emptiest, or none. Ties go by name: shelves are sorted.
const Shelf* BestFit(const std::vector<Shelf>& shelves, size_t count) {
  const Shelf* best = nullptr;
  for (const Shelf& shelf : shelves) {
    if (shelf.devices.size() < count) continue;
    if (best == nullptr || shelf.devices.size() < best->devices.size()) best = &shelf;
  }
  return best;
}

void Take(const Shelf& shelf, size_t count, std::vector<RankPlacement>& ranks) {
  for (size_t i = 0; i < count; ++i) {
    ranks.push_back({static_cast<int32_t>(ranks.size()), shelf.worker, shelf.devices[i]});
  }
}

// Fullest shelves first until the rest fits on one: no smaller number of workers can hold it.
std::vector<RankPlacement> Fill(std::vector<Shelf> shelves, size_t count) {
  std::stable_sort(shelves.begin(), shelves.end(), [](const Shelf& a, const Shelf& b) {
    return a.devices.size() > b.devices.size();
  });
  std::vector<RankPlacement> ranks;
  while (true) {
    const size_t left = count - ranks.size();
    if (const Shelf* last = BestFit(shelves, left); last != nullptr) {
      Take(*last, left, ranks);
      return ranks;
    }
    Take(shelves.front(), shelves.front().devices.size(), ranks);
    shelves.erase(shelves.begin());
  }
}

std::optional<std::vector<RankPlacement>> PlaceOnType(const Pool& pool, const std::string& type,
                                                      size_t count,
                                                      const std::set<DeviceKey>& without) {
  std::vector<Shelf> shelves = FreeDevices(pool, type, without);
  size_t free = 0;
  for (const Shelf& shelf : shelves) free += shelf.devices.size();
  if (free < count) return std::nullopt;
  return Fill(std::move(shelves), count);
}

size_t WorkersOf(const std::vector<RankPlacement>& ranks) {
  std::set<std::string> workers;
  for (const RankPlacement& rank : ranks) workers.insert(rank.worker);
  return workers.size();
}

std::optional<std::vector<RankPlacement>> PlaceWithout(const Pool& pool, const Demand& demand,
                                                       const std::set<DeviceKey>& without) {
  const size_t count = static_cast<size_t>(demand.count);
  if (!demand.type.empty()) return PlaceOnType(pool, demand.type, count, without);
  std::set<std::string> types;
  for (const PoolWorker& worker : pool) {
    for (const PoolDevice& device : worker.devices) types.insert(device.type);
  }
  // The type on which the gang spans the fewest workers.
  std::optional<std::vector<RankPlacement>> best;
  for (const std::string& type : types) {
    auto ranks = PlaceOnType(pool, type, count, without);
    if (ranks.has_value() && (!best.has_value() || WorkersOf(*ranks) < WorkersOf(*best))) {
      best = std::move(ranks);
    }
  }
  if (best.has_value() || !demand.mixed) return best;
  return PlaceOnType(pool, "", count, without);
}

absl::Status Bad(absl::string_view what) {
  return absl::FailedPreconditionError(what);
}

}  // namespace

std::optional<std::vector<RankPlacement>> PlaceGang(const Pool& pool, const QueuedJob& job) {
  auto ranks = PlaceWithout(pool, job.demand, job.avoid);
  if (!ranks.has_value() && !job.avoid.empty()) ranks = PlaceWithout(pool, job.demand, {});
  return ranks;
}

absl::Status CheckPlacement(const Pool& pool, const QueuedJob& job,
                            const std::vector<RankPlacement>& ranks) {
  const Demand& demand = job.demand;
  if (ranks.size() != static_cast<size_t>(demand.count)) {
    return Bad(absl::StrCat(ranks.size(), " ranks placed; the gang has ", demand.count));
  }
  std::set<DeviceKey> taken;
  std::set<std::string> types;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankPlacement& rank = ranks[i];
    if (rank.rank != static_cast<int32_t>(i)) {
      return Bad(absl::StrCat("rank ", rank.rank, " stands where ", i, " was expected"));
    }
    const auto worker = std::find_if(
        pool.begin(), pool.end(),
        [&rank](const PoolWorker& candidate) { return candidate.name == rank.worker; });
    if (worker == pool.end())
      return Bad(absl::StrCat("worker ", rank.worker, " is not in the pool"));
    const auto device = std::find_if(
        worker->devices.begin(), worker->devices.end(),
        [&rank](const PoolDevice& candidate) { return candidate.name == rank.device; });
    if (device == worker->devices.end() || !Offers(*worker, *device)) {
      return Bad(absl::StrCat("device ", rank.device, " of ", rank.worker, " is not on offer"));
    }
    if (!taken.insert({rank.worker, rank.device}).second) {
      return Bad(absl::StrCat("device ", rank.device, " of ", rank.worker, " was given out twice"));
    }
    types.insert(device->type);
  }
  if (!demand.type.empty() && (types.size() != 1 || *types.begin() != demand.type)) {
    return Bad(absl::StrCat("devices of another type than ", demand.type));
  }
  if (demand.type.empty() && !demand.mixed && types.size() != 1) {
    return Bad("devices of different types; the demand is not mixed");
  }
  return absl::OkStatus();
}

void Hold(Pool& pool, JobId job, const std::vector<RankPlacement>& ranks) {
  std::set<DeviceKey> taken;
  for (const RankPlacement& rank : ranks) taken.insert({rank.worker, rank.device});
  for (PoolWorker& worker : pool) {
    for (PoolDevice& device : worker.devices) {
      if (taken.count({worker.name, device.name}) > 0) device.holder = job;
    }
  }
}

}  // namespace trainyard::core
