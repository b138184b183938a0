// Defines what a scheduling pass looks at, and what it decides: placements, preemptions, growth,
// and a record from which the waiting of each job can be explained.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/core/lifecycle/config.h"
#include "server/core/scheduling/job_queue.h"
#include "server/core/scheduling/placement.h"
#include "server/core/scheduling/speeds.h"

namespace trainyard::core {

// Pairs of a path in the spec and a value ("devices.count", "2").
using SpecFields = std::vector<std::pair<std::string, std::string>>;
// Returns true if a job with these changes would be accepted. Only such changes are offered.
using AcceptChange = std::function<bool(const SpecFields& changes)>;

// Everything that a pass looks at. All of it is borrowed.
struct PassInput {
  const Config& config;
  const Pool& pool;
  const JobQueue& queue;
  const std::map<JobId, RunningJob>& running;
  const std::map<UsageKey, UsageRecord>& usage;      // decayed to now
  const std::map<std::string, QuotaRecord>& quotas;  // by subject
  // The reservations that are in force or will be.
  const std::map<std::string, ReservationRecord>& reservations;
  Now now;
  // These are for explanations alone, and may be null.
  const Speeds* speeds = nullptr;
  const AcceptChange* accept = nullptr;
};

struct GangPlacement {
  JobId job;
  std::vector<RankPlacement> ranks;
  JobId guest_of;  // the job that keeps these devices; 0 if there is none (see RunningJob::guest)
};

// A job that is to stop after a checkpoint. An elastic job may `keep` some of its devices, which
// stay reserved for it, and continues there.
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

// A running elastic job that continues, after a checkpoint, on these devices, which are its own and
// free ones.
struct Growth {
  JobId job;
  std::vector<DeviceKey> devices;
};

// An explanation of why a job waits, and until when.
struct Explanation {
  std::vector<std::string> reasons;  // all of them, in sentences; empty if it would start at once
  bool infeasible = false;           // true if the pool can never hold it
  int64_t position = 0;              // 1 is the first in the queue; 0 means held, or not in it
  // The smallest change of its spec that would start it now, and the sentence. It is empty if there
  // is none.
  SpecFields change;
  std::string change_text;
  std::optional<int64_t> start_in_us;  // from now, as far as is known; unset if unknown
  // Such as "when jobs/7 ends (its time limit)", or why it is unknown.
  std::string start_basis;
};

// The findings of a pass. They are kept until the next pass, so that explanations are look-ups.
class PassRecord {
 public:
  virtual ~PassRecord() = default;
  // Returns only the reasons of a job of the queue, which is quick.
  virtual std::vector<std::string> Reasons(const PassInput& input, JobId job) const = 0;
  // Returns everything about a job. The job need not have been submitted; it then counts as the
  // last one.
  virtual Explanation Explain(const PassInput& input, const QueuedJob& job) const = 0;
};

struct Plan {
  std::vector<GangPlacement> placements;
  std::vector<Preemption> preemptions;
  std::vector<Growth> growths;
  std::shared_ptr<const PassRecord> record;  // never null
  // The first waiting jobs in their order, at most kFrontMax. Their reasons are shown as they
  // change. Those of later jobs are computed when somebody asks for them.
  std::vector<JobId> front;
};
inline constexpr size_t kFrontMax = 200;

// Says which parts of the full policy are active. The comparison of policies switches them off.
struct PolicyOptions {
  bool priorities = true;
  bool fair_share = true;
  bool backfill = true;
  bool preemption = true;
  bool elastic = true;  // if false, an elastic job takes the most that it asks for
  bool guests = true;   // only together with backfill and preemption
};

}  // namespace trainyard::core
