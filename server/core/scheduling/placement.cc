// Checks placements against the pool.
#include "server/core/scheduling/placement.h"

#include <algorithm>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::core {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::FailedPreconditionError(what);
}

// `AnyPool` is a pool, const or not.
template <typename AnyPool>
auto* FindWorker(AnyPool& pool, const std::string& name) {
  const auto found = std::lower_bound(
      pool.begin(), pool.end(), name,
      [](const PoolWorker& worker, const std::string& wanted) { return worker.name < wanted; });
  return found == pool.end() || found->name != name ? nullptr : std::to_address(found);
}

template <typename Worker>
auto* FindDevice(Worker& worker, const std::string& name) {
  const auto found =
      std::find_if(worker.devices.begin(), worker.devices.end(),
                   [&name](const PoolDevice& candidate) { return candidate.name == name; });
  return found == worker.devices.end() ? nullptr : std::to_address(found);
}

// Returns what is left of the host for new ranks.
HostAmount RoomOn(const PoolWorker& worker) {
  HostAmount room = worker.host;
  for (const PoolDevice& device : worker.devices) {
    if (device.holder != JobId{}) room -= device.held;
  }
  for (const PoolSeat& seat : worker.seats) room -= seat.held;
  return room;
}

absl::Status CheckSeat(const PoolWorker& worker, const QueuedJob& job) {
  const bool is_offered = worker.takes_ranks && worker.users.Allow(job.user);
  if (is_offered &&
      FirstMismatch(job.demand, worker.traits, SeatOf(worker.host)) == Mismatch::kNone) {
    return absl::OkStatus();
  }
  return Bad(absl::StrCat("worker ", worker.name, " takes no such rank without a device"));
}

absl::Status CheckDevice(const PoolWorker& worker, const PoolDevice& device, const QueuedJob& job) {
  const auto bad = [&](const auto&... what) {
    return Bad(absl::StrCat("device ", device.name, " of ", worker.name, " ", what...));
  };
  const Demand& demand = job.demand;
  if (device.holder != JobId{} || !MayUse(worker, device, job)) return bad("is not on offer");
  if (device.memory_bytes < demand.memory_bytes) {
    return bad("has ", device.memory_bytes, " bytes of memory; the demand is ",
               demand.memory_bytes);
  }
  if (!demand.type.empty() && device.type != demand.type) {
    return bad("is of type ", device.type, "; the demand is ", demand.type);
  }
  if (demand.bf16 && !device.bf16) return bad("does not compute in bf16, which is demanded");
  for (const auto& [key, value] : demand.labels) {
    const auto found = worker.traits.labels.find(key);
    if (found == worker.traits.labels.end() || found->second != value) {
      return bad("is on a worker without the label ", key, "=", value);
    }
  }
  if (device.memory_bytes > 0 && device.memory_bytes < NeedOn(demand, device.type)) {
    return bad("has ", device.memory_bytes, " bytes of memory; the job needs ",
               NeedOn(demand, device.type));
  }
  if (demand.is_deviceless) return bad("is not wanted; the demand is without a device");
  const Mismatch mismatch =
      FirstMismatch(demand, worker.traits,
                    {device.type, device.memory_bytes, device.bf16, worker.host, device.share});
  if (mismatch == Mismatch::kHost) {
    return bad("is on a host with less than the demanded processors and memory");
  }
  if (mismatch == Mismatch::kDataset) {
    return bad("is on a worker without the data set ", demand.dataset, " ", demand.data_digest);
  }
  return absl::OkStatus();
}

}  // namespace

std::string SeatName(JobId job) {
  return absl::StrCat("#", job.value);
}

JobId SeatOwner(absl::string_view name) {
  int64_t job = 0;
  if (name.empty() || name.front() != '#' || !absl::SimpleAtoi(name.substr(1), &job)) return {};
  return JobId{job};
}

bool MayUse(const PoolWorker& worker, const PoolDevice& device, const QueuedJob& job) {
  if (!worker.takes_ranks || !device.usable || !worker.users.Allow(job.user)) return false;
  if (device.claim != JobId{} && device.claim != job.id) return false;
  if (!job.reservation.empty()) {
    return device.reservation == job.reservation && job.reservations.count(job.reservation) > 0;
  }
  return device.reservation.empty() || job.reservations.count(device.reservation) > 0;
}

absl::Status CheckPlacement(const Pool& pool, const QueuedJob& job,
                            const std::vector<RankPlacement>& ranks) {
  const Demand& demand = job.demand;
  const auto placed = static_cast<int32_t>(ranks.size());
  if (placed < demand.least() || placed > demand.count) {
    const std::string least = demand.is_elastic() ? absl::StrCat(demand.least(), " to ") : "";
    return Bad(absl::StrCat(placed, " ranks placed; the gang has ", least, demand.count));
  }
  std::set<DeviceKey> taken;
  std::map<std::string, HostAmount> held;
  std::set<std::string> types;
  for (int32_t i = 0; i < placed; ++i) {
    const RankPlacement& rank = ranks[static_cast<size_t>(i)];
    if (rank.rank != i) {
      return Bad(absl::StrCat("rank ", rank.rank, " stands where ", i, " was expected"));
    }
    const PoolWorker* worker = FindWorker(pool, rank.worker);
    if (worker == nullptr) return Bad(absl::StrCat("worker ", rank.worker, " is not in the pool"));
    HostAmount& on_host = held[rank.worker] += rank.held;
    if (!worker->host.empty() && !on_host.Fits(RoomOn(*worker))) {
      return Bad(absl::StrCat("the ranks on ", rank.worker, " hold ", on_host.cpus, " cpus and ",
                              on_host.memory_bytes, " bytes; less is free there"));
    }
    if (rank.device.empty()) {
      TY_RETURN_IF_ERROR(CheckSeat(*worker, job));
      continue;
    }
    const PoolDevice* device = FindDevice(*worker, rank.device);
    if (device == nullptr) {
      return Bad(absl::StrCat("device ", rank.device, " of ", rank.worker, " does not exist"));
    }
    if (!taken.insert({rank.worker, rank.device}).second) {
      return Bad(absl::StrCat("device ", rank.device, " of ", rank.worker, " was given out twice"));
    }
    if (absl::Status status = CheckDevice(*worker, *device, job); !status.ok()) return status;
    types.insert(device->type);
    if (demand.one_host && rank.worker != ranks.front().worker) {
      return Bad(absl::StrCat("ranks on ", ranks.front().worker, " and ", rank.worker,
                              "; the demand is one host"));
    }
  }
  if (!demand.mixed && types.size() > 1) {
    return Bad("devices of different types; the demand is not mixed");
  }
  return absl::OkStatus();
}

void Hold(Pool& pool, JobId job, const std::vector<RankPlacement>& ranks) {
  for (const RankPlacement& rank : ranks) {
    PoolWorker* worker = FindWorker(pool, rank.worker);
    if (worker == nullptr) continue;
    if (rank.device.empty()) worker->seats.push_back({job, rank.held});
    PoolDevice* device = FindDevice(*worker, rank.device);
    if (device == nullptr) continue;
    device->holder = job;
    device->held = rank.held;
  }
}

}  // namespace trainyard::core
