// Checks the limits of a network: how small and how large its samples may be, and into how many
// stages a pipeline can cut it. Without these checks only a worker would notice, when the job
// starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::spec {

// Adds violations for samples that are too small or too large for the network. Stacks of layers are
// left to PlanStack, whose messages are more precise. `model` must have its defaults.
void CheckSampleSize(const v1::ModelSpec& model, std::vector<FieldViolation>& violations);

// Returns the largest number of stages that a pipeline can have, or 0 if the model has mistakes of
// its own. `model` must have its defaults.
int64_t MostStages(const v1::ModelSpec& model);

// Returns the name of the model, such as "resnet", or an empty text if none is chosen.
std::string ModelName(const v1::ModelSpec& model);

}  // namespace trainyard::spec
