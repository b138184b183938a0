// Where a gang goes. Pure functions of a picture of the pool.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/core/types.h"

namespace trainyard::core {

using DeviceKey = std::pair<std::string, std::string>;  // worker, device

struct PoolDevice {
  std::string name;
  std::string type;
  bool usable = true;   // healthy
  std::string why_not;  // "is quarantined: Xid 79", where not
  JobId holder;         // 0: free
};

struct PoolWorker {
  std::string name;
  bool takes_ranks = true;
  std::string why_not;  // "is cordoned", where it does not
  std::vector<PoolDevice> devices;
};

// Workers in order of name; those that are GONE are left out.
using Pool = std::vector<PoolWorker>;

struct QueuedJob {
  JobId id;
  Demand demand;
  int32_t priority = 0;
  // Devices on which it failed by their fault; taken only where there are no others.
  std::set<DeviceKey> avoid;
  // Sentences why it may not be placed now whatever is free (a backoff); then it holds up nobody.
  std::vector<std::string> holds;
};

// Places all ranks or none: on the one worker that it fills best, else on as few workers as
// possible. Devices are of one type unless the demand is mixed.
std::optional<std::vector<RankPlacement>> PlaceGang(const Pool& pool, const QueuedJob& job);

// FAILED_PRECONDITION where `ranks` is not a whole gang of `demand` on free devices of `pool`.
absl::Status CheckPlacement(const Pool& pool, const Demand& demand,
                            const std::vector<RankPlacement>& ranks);

// Marks the devices as held.
void Hold(Pool& pool, JobId job, const std::vector<RankPlacement>& ranks);

}  // namespace trainyard::core
