// Makes the report that --plan prints.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/trainer/plan/planned_step.h"

namespace trainyard::trainer {

// Returns the report. `spec_json` is a JobSpec as in assignment.json.
absl::StatusOr<std::string> ReportPlan(absl::string_view spec_json, const PlanOptions& options);

}  // namespace trainyard::trainer
