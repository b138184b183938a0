// The layers of a spec as the structs of common/layers, which know how they fit together.
#pragma once

#include "common/layers/stack.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::spec {

// Of a model whose defaults have been filled in. A layer without a kind stays without one.
layers::Stack ToStack(const v1::LayersModel& model);

}  // namespace trainyard::spec
