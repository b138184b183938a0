// Formats the plan of a pipeline as text.
#pragma once

#include <string>

#include "worker/trainer/plan/planned_pipeline.h"

namespace trainyard::trainer {

// Returns a table for people.
std::string PipelineText(const PlannedPipeline& plan);
// Returns one JSON object, with a newline.
std::string PipelineJson(const PlannedPipeline& plan);

}  // namespace trainyard::trainer
