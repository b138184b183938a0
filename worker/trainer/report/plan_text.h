// A step report as text.
#pragma once

#include <string>

#include "worker/trainer/plan/planned_step.h"

namespace trainyard::trainer {

// What is computed, and the memory by category.
std::string MemoryText(const PlannedStep& report);
// That, the predicted time, and what ops and passes do.
std::string PlanTable(const PlannedStep& report);
// A row a layer of the model.
std::string LayerTable(const PlannedStep& report);
// One object, with a newline.
std::string PlanJson(const PlannedStep& report);

}  // namespace trainyard::trainer
