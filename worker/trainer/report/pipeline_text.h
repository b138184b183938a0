// The plan of a pipeline as text.
#pragma once

#include <string>

#include "worker/trainer/plan/stage_plan.h"

namespace trainyard::trainer {

// A table for people.
std::string PipelineText(const PipelinePlan& plan);
// One JSON object, with a newline.
std::string PipelineJson(const PipelinePlan& plan);

}  // namespace trainyard::trainer
