// Chooses the running jobs that have to go so that a job with a larger priority can start.
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

// As Preemption in plan.h, in slots.
struct Nomination {
  std::vector<int32_t> slots;                     // the whole gang
  std::map<JobId, std::vector<int32_t>> victims;  // and what they keep
};

// Finds the victims that lose least work, none of them without need, so that `job` has its whole
// gang once they have gone. Finds none if the gang would still not fit, or if it fits once the jobs
// in `stopping` have gone, which are on their way out already. Elastic jobs give up devices before
// a job goes as a whole. If `is_head`, guests of no larger priority go too. Leaves `slots` as they
// were.
std::optional<Nomination> Nominate(Slots& slots, const std::map<JobId, RunningJob>& running,
                                   const HeldSlots& held, const std::set<JobId>& stopping,
                                   const QueuedJob& job, const Offer& offer, const GangDemand& gang,
                                   bool is_head = false);

}  // namespace trainyard::core
