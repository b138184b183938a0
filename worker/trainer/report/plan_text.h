// Formats a planned step as text.
#pragma once

#include <string>

#include "worker/trainer/plan/planned_step.h"

namespace trainyard::trainer {

// Says what is computed, and the memory by category.
std::string MemoryText(const PlannedStep& report);
// Says the same, and also the predicted time and what ops and passes do.
std::string PlanTable(const PlannedStep& report);
// Has a row for each layer of the model.
std::string LayerTable(const PlannedStep& report);
// Returns one JSON object, with a newline.
std::string PlanJson(const PlannedStep& report);

}  // namespace trainyard::trainer
