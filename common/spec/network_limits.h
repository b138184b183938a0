// What a network can take: how small and how large its samples may be, and into how many stages a
// pipeline can cut it. Without these checks only a worker would find out, when the job starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::spec {

// Adds samples that are too small or too large for the network. Stacks of layers are left to
// PlanStack, which says more. `model` has its defaults.
void CheckSampleSize(const v1::ModelSpec& model, std::vector<FieldViolation>& violations);

// Returns the most stages that a pipeline can have; 0 where the model has mistakes of its own.
// `model` has its defaults.
int64_t MostStages(const v1::ModelSpec& model);

// "resnet"; empty where none is chosen.
std::string ModelName(const v1::ModelSpec& model);

}  // namespace trainyard::spec
