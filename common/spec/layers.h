// Converts the layers of a spec to the structs of common/layers, which check how they fit together.
#pragma once

#include <cstdint>

#include "common/layers/stack.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::spec {

// Returns the layers of a model whose defaults have been filled in. A layer without a kind stays
// without one.
layers::Stack ToStack(const v1::LayersModel& model);

// Returns the number of classes that the last layer gives, or 0 if the layers do not fit together.
int64_t ClassesOf(const v1::LayersModel& model);

}  // namespace trainyard::spec
