// Predicts how long a machine takes for a piece of work: as long as its arithmetic or its memory
// traffic, whichever takes longer (Williams et al. 2009, "Roofline").
#pragma once

#include <cstdint>

#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/cost.h"
#include "worker/trainer/plan/machine_speed.h"

namespace trainyard::trainer {

// Both return 0 if `machine` was not measured.
double CostSeconds(const engine::Cost& cost, const MachineSpeed& machine);
// Returns the time of one node of a step, computed for `rows` rows.
double NodeSeconds(const engine::Graph& graph, const engine::Node& node, int64_t rows,
                   const MachineSpeed& machine);

}  // namespace trainyard::trainer
