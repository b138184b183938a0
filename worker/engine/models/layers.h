// Declares the function that builds the graph of a stack of layers. All models are built by it.
#pragma once

#include "absl/status/statusor.h"
#include "common/layers/stack.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// Builds the graph of a stack whose layers with weights have names, and whose `from` names layers
// that have one. Parameters start by PyTorch's default. Returns INVALID_ARGUMENT with the first
// layer whose input does not fit.
absl::StatusOr<Graph> BuildStack(const layers::Stack& stack);

}  // namespace trainyard::engine
