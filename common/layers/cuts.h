// Counts the places in which a stack can be cut into the stages of a pipeline.
#pragma once

#include "common/layers/plan.h"
#include "common/layers/stack.h"

namespace trainyard::layers {

// Returns the number of layers, and the loss behind them, with which a stage can begin: exactly one
// value is made before it and read from it on. A flatten goes with the layer after it. The engine
// cuts its graphs by the same rule; tests compare both. `plan` is that of the stack, without
// mistakes.
int CountCuts(const Stack& stack, const StackPlan& plan);

}  // namespace trainyard::layers
