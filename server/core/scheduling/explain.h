// Why a job waits, in sentences for people, and what would start it.
#pragma once

#include <memory>
#include <vector>

#include "server/core/scheduling/pass.h"
#include "server/core/scheduling/plan.h"

namespace trainyard::core {

// `state` is as the pass has left it; `front` has the first waiting jobs in their order.
std::shared_ptr<const PassRecord> MakeRecord(const PassInput& input,
                                             std::unique_ptr<const PassState> state,
                                             const std::vector<JobId>& front);

}  // namespace trainyard::core
