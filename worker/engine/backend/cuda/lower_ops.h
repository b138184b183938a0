// Declares one function for each op. It chooses where the outputs of the node lie, and emits its
// calls.
#pragma once

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/lowering.h"

namespace trainyard::engine::cuda {

#define TY_OP(kind, name) absl::Status Lower##kind(Lowering& lowering, const Node& node);
#include "worker/engine/graph/ops.def"
#undef TY_OP

}  // namespace trainyard::engine::cuda
