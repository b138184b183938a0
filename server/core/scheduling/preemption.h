// Who has to go so that a job with a larger priority can start.
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

// In slots; see Preemption in policy.h.
struct Nomination {
  std::vector<int32_t> slots;                     // the whole gang
  std::map<JobId, std::vector<int32_t>> victims;  // and what they keep
};

// The victims that lose least work, none of them without need, so that `job` has its whole gang
// once they have gone; none where it would still not fit, or fits already once those have gone that
// are on their way out. Elastic jobs give up devices before anybody goes. Leaves `slots` as they
// were. `stopping`: jobs on their way out. `is_head`: guests go too, whose priority is no larger.
std::optional<Nomination> Nominate(Slots& slots, const std::map<JobId, RunningJob>& running,
                                   const HeldSlots& held, const std::set<JobId>& stopping,
                                   const QueuedJob& job, const Offer& offer, const GangDemand& gang,
                                   bool is_head = false);

}  // namespace trainyard::core
