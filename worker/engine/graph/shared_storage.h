// Finds out which values of a graph lie in the same memory.
#pragma once

#include <vector>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// Returns for each value the value whose memory it shares: for the output of an alias its input,
// for an in-place result the overwritten value, else itself.
std::vector<ValueId> SharedStorage(const Graph& graph);

}  // namespace trainyard::engine
