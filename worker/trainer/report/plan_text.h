// A step report as text.
#pragma once

#include <string>

#include "worker/trainer/plan/step_report.h"

namespace trainyard::trainer {

// What is computed, and the memory by category.
std::string MemoryText(const StepReport& report);
// That, the predicted time, and what ops and passes do.
std::string PlanTable(const StepReport& report);
// A row a layer of the model.
std::string LayerTable(const StepReport& report);
// One object, with a newline.
std::string PlanJson(const StepReport& report);

}  // namespace trainyard::trainer
