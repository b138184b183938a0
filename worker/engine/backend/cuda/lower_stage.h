// Declares how the ends of a stage of a pipeline become calls, besides the ops in lower_ops.h.
#pragma once

#include "worker/engine/backend/cuda/lowering.h"

namespace trainyard::engine::cuda {

// Gives the stage's input a place: at the boundary, where the stage before has left it.
void LowerStageInput(Lowering& lowering);
// Copies the gradient of the stage's input to the boundary.
void LowerStageInputGradient(Lowering& lowering);
// Adds the batch statistics, which the forward half has left in the arena, to the sums of the
// step.
void LowerStageStatistics(Lowering& lowering);

}  // namespace trainyard::engine::cuda
