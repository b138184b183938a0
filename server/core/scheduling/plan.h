// What a scheduling pass looks at, and what it decides: placements, preemptions, growth, and a
// record from which the waiting of each job can be explained.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/core/lifecycle/config.h"
#include "server/core/scheduling/job_queue.h"
#include "server/core/scheduling/placement.h"

namespace trainyard::core {

// Everything that a pass looks at. Borrowed.
struct PassInput {
  const Config& config;
  const Pool& pool;
  const JobQueue& queue;
  const std::map<JobId, RunningJob>& running;
  const std::map<UsageKey, UsageRecord>& usage;      // decayed to now
  const std::map<std::string, QuotaRecord>& quotas;  // by subject
  // Reservations that are in force or to come.
  const std::map<std::string, ReservationRecord>& reservations;
  Now now;
};

struct GangPlacement {
  JobId job;
  std::vector<RankPlacement> ranks;
  JobId guest_of;  // who keeps these devices; 0: nobody (see RunningJob::guest)
};

// A job that is to stop after a checkpoint. An elastic one may `keep` some of its devices: they are
// kept free for it, and it goes on there.
struct Victim {
  JobId job;
  std::vector<DeviceKey> keep;
};

// Nominates `job`: `devices` are claimed for it, and the victims are asked for a checkpoint and
// stopped once it is committed.
struct Preemption {
  JobId job;
  std::vector<DeviceKey> devices;
  std::vector<Victim> victims;
};

// A running elastic job goes on with these devices, its own and free ones, after a checkpoint.
struct Growth {
  JobId job;
  std::vector<DeviceKey> devices;
};

// Why a job waits, and until when.
struct Explanation {
  std::vector<std::string> reasons;  // all of them, in sentences; empty: it would start at once
  bool infeasible = false;           // the pool as it is can never hold it
  int64_t position = 0;              // 1: first in the queue; 0: held, or not in it
  // The smallest change of its spec that would start it now: path and value ("devices.count",
  // "2"), and the sentence. Empty where there is none.
  std::vector<std::pair<std::string, std::string>> change;
  std::string change_text;
  std::optional<int64_t> start_in_us;  // from now, by what is known; unset: unknown
  std::string start_basis;             // "when jobs/7 ends (its time limit)", or why it is unknown
};

// What a pass has found out, kept until the next one: explanations are look-ups.
class PassRecord {
 public:
  virtual ~PassRecord() = default;
  // The reasons alone of a job of the queue; quick.
  virtual std::vector<std::string> Reasons(const PassInput& input, JobId job) const = 0;
  // Everything about a job, which need not be submitted: one that is not comes last.
  virtual Explanation Explain(const PassInput& input, const QueuedJob& job) const = 0;
};

struct Plan {
  std::vector<GangPlacement> placements;
  std::vector<Preemption> preemptions;
  std::vector<Growth> growths;
  std::shared_ptr<const PassRecord> record;  // never null
  // The first waiting jobs in their order, at most kFrontMax: their reasons are shown as they
  // change. Those behind them learn theirs when they are asked for.
  std::vector<JobId> front;
};
inline constexpr size_t kFrontMax = 200;

// Which parts of the full policy are at work. The comparison of policies switches them off.
struct PolicyOptions {
  bool priorities = true;
  bool fair_share = true;
  bool backfill = true;
  bool preemption = true;
  bool elastic = true;  // else an elastic job takes the most that it asks for
  bool guests = true;   // needs backfill and preemption
};

}  // namespace trainyard::core
