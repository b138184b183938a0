// Gives elastic jobs that run on fewer devices than they could use those that nobody waits for.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "server/core/lifecycle/config.h"
#include "server/core/scheduling/backfill.h"
#include "server/core/scheduling/fair_share.h"
#include "server/core/scheduling/preemption.h"
#include "server/core/scheduling/quota.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// Returns the jobs that grow, each with its additional slots, in order of need: larger priority,
// smaller share, smaller number. `wanted` marks the classes that a waiting job could use. A job
// gets none of these, unless the head that keeps them waits for the end of this very job and gains
// if that comes sooner. The slots are claimed, and the quotas are charged.
std::vector<std::pair<JobId, std::vector<int32_t>>> GrowElastic(
    Slots& slots, const std::map<JobId, RunningJob>& running, const HeldSlots& held,
    const std::set<JobId>& stopping, const std::vector<bool>& wanted,
    const std::vector<Head>& heads, const FairShare& share, Quotas& quotas,
    int64_t since_before_us);

}  // namespace trainyard::core
