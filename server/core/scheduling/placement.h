// The pool, the waiting jobs and the running jobs as a pass sees them, and the check that every
// placement has to pass.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/core/lifecycle/records.h"

namespace trainyard::core {

using DeviceKey = std::pair<std::string, std::string>;  // worker, device

struct PoolDevice {
  std::string name;
  std::string type;
  bool usable = true;   // healthy
  std::string why_not;  // "is quarantined: Xid 79", where not
  JobId holder;         // 0: free
  int64_t memory_bytes = 0;
  int32_t island = 0;       // NVLink island within the worker
  JobId claim;              // kept free for this job by a preemption or a resize; 0: for nobody
  std::string reservation;  // in force now: only jobs entitled to it; empty: none
};

struct PoolWorker {
  std::string name;
  bool takes_ranks = true;
  std::string why_not;  // "is cordoned", where it does not
  std::map<std::string, std::string> labels;
  std::vector<PoolDevice> devices;
};

// Workers in order of name; those that are GONE are left out.
using Pool = std::vector<PoolWorker>;

// A job that waits for devices.
struct QueuedJob {
  JobId id;
  JobId array;                 // the first job of its array; 0: none
  int32_t array_parallel = 0;  // at most so many of that array hold devices; 0: no limit
  Demand demand;
  int32_t priority = 0;
  bool preemptible = true;  // it may be a guest, too (see RunningJob)
  std::string user;
  std::string project;
  // How long it will hold devices at most, from its time limit or from the steps left at the rate
  // measured before; 0: unknown.
  int64_t expected_us = 0;
  int64_t waiting_since_us = 0;  // wall: submission
  // Reservations whose devices it may use. If `reservation` is set, it uses no others.
  std::set<std::string> reservations;
  std::string reservation;
  // Somebody was stopped so that it gets the devices that are claimed for it.
  bool has_room_made = false;
  // Sentences that say why it may not be placed now, whatever is free: a backoff, a dependency, a
  // delayed start, the limit of its array. A job with holds holds up no other.
  std::vector<std::string> holds;

  friend bool operator==(const QueuedJob&, const QueuedJob&) = default;
};

// A job that holds devices.
struct RunningJob {
  JobId id;
  JobId array;
  Demand demand;
  int32_t priority = 0;
  std::string user;
  std::string project;
  std::vector<RankPlacement> ranks;
  int64_t since_us = 0;           // uptime: when the attempt was placed
  std::optional<int64_t> end_us;  // uptime: when it is expected to give its devices back
  int64_t at_risk_us = 0;         // time since its last committed checkpoint, or its start
  bool may_preempt = false;  // it runs, is preemptible, and is a guest or has run for long enough
  bool stops = false;        // on its way out, or asked to go
  // It holds devices that were kept for a waiting job which could not have started soon. It goes,
  // after a checkpoint, as soon as that job can start.
  bool guest = false;
  std::set<std::string> reservations;
  std::string reservation;  // as in QueuedJob

  friend bool operator==(const RunningJob&, const RunningJob&) = default;
};

// True if `job` may have this device of the worker, whoever holds it now: the worker takes ranks,
// the device is fit, it is claimed for no other job, and it is no part of a reservation that is not
// the job's.
bool MayUse(const PoolWorker& worker, const PoolDevice& device, const QueuedJob& job);

// FAILED_PRECONDITION if `ranks` is not a whole gang of what `job` asks for, on devices of `pool`
// that are free for it.
absl::Status CheckPlacement(const Pool& pool, const QueuedJob& job,
                            const std::vector<RankPlacement>& ranks);

// Marks the devices as held.
void Hold(Pool& pool, JobId job, const std::vector<RankPlacement>& ranks);

}  // namespace trainyard::core
