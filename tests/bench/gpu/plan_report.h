// Reports how plans were chosen, and which candidates were refused.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/engine/backend/cuda/tuning/plan_record.h"

namespace trainyard::engine::bench {

nlohmann::json ToJson(const std::vector<cuda::PlanRecord>& plans);
// Returns a table with a line for each plan, as text.
std::string RenderPlans(const std::vector<cuda::PlanRecord>& plans);
// Returns how many plans there are, how many candidates were compared, and what with, in a line.
std::string PlansLine(const std::vector<cuda::PlanRecord>& plans);
// Returns FAILED_PRECONDITION, with all of them, if candidates were refused.
absl::Status CheckVerified(const std::vector<cuda::PlanRecord>& plans);

}  // namespace trainyard::engine::bench
