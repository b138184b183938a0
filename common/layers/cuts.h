// Counts the places in which a stack can be cut into the stages of a pipeline.
#pragma once

#include "common/layers/plan.h"
#include "common/layers/stack.h"

namespace trainyard::layers {

// Returns the number of places at which a stage can begin: before a layer or before the loss, if
// exactly one value is made earlier and read from there on, and no weight is used on both sides.
// A flatten goes with the layer after it.
// The engine cuts its graphs by the same rule, and tests compare both. `plan` must be the plan of
// the stack, and free of mistakes.
int CountCuts(const Stack& stack, const StackPlan& plan);

}  // namespace trainyard::layers
