// Which values of a graph lie in the same memory.
#pragma once

#include <vector>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// For each value, the value whose memory it shares: for the output of an alias its input, in place
// the overwritten one, else itself.
std::vector<ValueId> SharedStorage(const Graph& graph);

}  // namespace trainyard::engine
