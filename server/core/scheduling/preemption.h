// Chooses the running jobs that must stop so that a job with a larger priority can start.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "server/core/scheduling/packing.h"
#include "server/core/scheduling/placement.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

using HeldSlots = std::map<JobId, std::vector<int32_t>>;

// A Preemption of plan.h, in slots.
struct Nomination {
  std::vector<int32_t> slots;                     // of the whole gang
  std::map<JobId, std::vector<int32_t>> victims;  // the victims, and the slots that they keep
};

// Finds the victims that lose the least work, none of them without need, so that `job` has its
// whole gang once they have stopped. Finds none if the gang would still not fit, or if it fits once
// the jobs in `stopping` have ended. Elastic jobs give up devices before a job stops as a whole. If
// `is_head`, guests of no larger priority are victims too. `slots` ends up unchanged.
std::optional<Nomination> Nominate(Slots& slots, const std::map<JobId, RunningJob>& running,
                                   const HeldSlots& held, const std::set<JobId>& stopping,
                                   const QueuedJob& job, const Offer& offer, const GangDemand& gang,
                                   bool is_head = false);

}  // namespace trainyard::core
