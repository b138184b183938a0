// Explains in sentences for people why a job waits, and what would start it.
#pragma once

#include <memory>
#include <vector>

#include "server/core/scheduling/pass.h"
#include "server/core/scheduling/plan.h"

namespace trainyard::core {

// Makes the record of a pass. `state` is as the pass has left it; `front` holds the first waiting
// jobs in their order.
std::shared_ptr<const PassRecord> MakeRecord(const PassInput& input,
                                             std::unique_ptr<const PassState> state,
                                             const std::vector<JobId>& front);

}  // namespace trainyard::core
