// Defines the pool, the waiting jobs and the running jobs as a pass sees them, and the check that
// every placement must pass.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "server/core/scheduling/eligibility.h"
#include "server/core/scheduling/worker_users.h"

namespace trainyard::core {

using DeviceKey = std::pair<std::string, std::string>;  // worker, device

struct PoolDevice {
  std::string name;
  std::string type;
  bool usable = true;   // healthy
  std::string why_not;  // such as "is quarantined: Xid 79"; empty if usable
  JobId holder;         // 0 if free
  int64_t memory_bytes = 0;
  int32_t island = 0;  // the NVLink island within the worker
  // The job for which it is kept free by a preemption or a resize; 0 if there is none.
  JobId claim;
  // The reservation in force, for entitled jobs only; empty if there is none.
  std::string reservation;
  bool bf16 = false;      // it computes in bf16
  HostAmount share = {};  // what a rank on it holds of the host by default
  HostAmount held = {};   // what the rank on it holds, if there is one
};

// A rank without a device, which holds processors and memory of its host alone.
struct PoolSeat {
  JobId holder;
  HostAmount held;
};

struct PoolWorker {
  std::string name;
  bool takes_ranks = true;
  std::string why_not;  // such as "is cordoned"; empty if it takes ranks
  WorkerTraits traits;
  std::vector<PoolDevice> devices;
  WorkerUsers users = {};
  HostAmount host = {};                   // empty if it is not divided
  HostAmount device_share = {};           // what a device stands for (DeviceShare)
  std::vector<PoolSeat> seats = {};       // those that are taken
  std::vector<JobId> claimed_seats = {};  // the jobs for which a seat is claimed
};

// Returns the name by which the seat that is claimed for a job stands in a DeviceKey. No device has
// such a name.
std::string SeatName(JobId job);
// Returns the job of such a name, or 0 for the name of a device.
JobId SeatOwner(absl::string_view name);

// The workers in order of name, without those that are GONE.
using Pool = std::vector<PoolWorker>;

// Says when the holds of a job will be over, as far as that comes about by itself.
struct Release {
  int64_t not_before_us = 0;  // wall time; 0 if no time is set
  // The jobs that have to end before.
  std::vector<JobId> after = {};
  bool needs_success = false;  // some of them have to succeed
  bool never_comes = false;    // what it waits for has ended in another way

  bool empty() const { return not_before_us == 0 && after.empty() && !never_comes; }
  friend bool operator==(const Release&, const Release&) = default;
};

// A job that waits for devices.
struct QueuedJob {
  JobId id;
  JobId array;                 // the first job of its array; 0 if there is none
  int32_t array_parallel = 0;  // how many jobs of that array may hold devices; 0 means no limit
  Demand demand;
  int32_t priority = 0;
  bool preemptible = true;  // it may then also be a guest (see RunningJob)
  std::string user;
  std::string project;
  // The longest time that it will hold devices, from its time limit or from the steps left at the
  // rate measured before. 0 means unknown.
  int64_t expected_us = 0;
  Work work = {};                // from which forecasts estimate the time if that is unknown
  int64_t waiting_since_us = 0;  // wall time of the submission
  // The reservations whose devices it may use. If `reservation` is set, it uses no other devices.
  std::set<std::string> reservations;
  std::string reservation;
  // True if a victim was stopped so that the job gets the devices that are claimed for it.
  bool has_room_made = false;
  // Sentences that say why it may not be placed now, whatever is free: a backoff, a dependency, a
  // delayed start, the limit of its array. A job with holds does not delay others.
  std::vector<std::string> holds;
  Release release = {};
  // The user, if a worker has said whether it runs this user's jobs. Otherwise it is empty, because
  // all workers treat the jobs of such users alike.
  std::string named_user = {};

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
  // The time since its last committed checkpoint, or since its start.
  int64_t at_risk_us = 0;
  // True if it runs, is preemptible, and is a guest or has run for long enough.
  bool may_preempt = false;
  bool stops = false;  // true if it is stopping, or was asked to stop
  // True if it holds devices that were kept for a waiting job which could not have started soon. It
  // leaves, after a checkpoint, as soon as that job can start.
  bool guest = false;
  std::set<std::string> reservations;
  std::string reservation;  // as in QueuedJob

  friend bool operator==(const RunningJob&, const RunningJob&) = default;
};

// Returns true if `job` may have this device of the worker, whoever holds it now: the worker takes
// ranks and runs jobs of this user, the device is fit, no other job has a claim on it, and it is
// not part of a reservation that is not the job's.
bool MayUse(const PoolWorker& worker, const PoolDevice& device, const QueuedJob& job);

// Returns FAILED_PRECONDITION unless `ranks` is a whole gang of what `job` asks for, on devices of
// `pool` that are free for it.
absl::Status CheckPlacement(const Pool& pool, const QueuedJob& job,
                            const std::vector<RankPlacement>& ranks);

// Marks the devices as held.
void Hold(Pool& pool, JobId job, const std::vector<RankPlacement>& ranks);

}  // namespace trainyard::core
