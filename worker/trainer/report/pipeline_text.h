// The plan of a pipeline as text.
#pragma once

#include <string>

#include "worker/trainer/plan/planned_pipeline.h"

namespace trainyard::trainer {

// A table for people.
std::string PipelineText(const PlannedPipeline& plan);
// One JSON object, with a newline.
std::string PipelineJson(const PlannedPipeline& plan);

}  // namespace trainyard::trainer
