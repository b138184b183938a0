// Declares one function for each op, which chooses the layouts of the node's outputs and emits its
// calls.
#pragma once

#include "worker/engine/backend/cpu/lowering.h"

namespace trainyard::engine::cpu {

#define TY_OP(kind, name) void Lower##kind(Lowering& lowering, const Node& node);
#include "worker/engine/graph/ops.def"
#undef TY_OP

}  // namespace trainyard::engine::cpu
