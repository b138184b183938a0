// Computes the cost of an op and of a graph, for plans and for reports of measurements.
#pragma once

#include <cstdint>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// The arithmetic and the traffic of a node for a number of rows, with each tensor read or written
// once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};
Cost NodeCost(const Graph& graph, const Node& node, int64_t rows);
Cost GraphCost(const Graph& graph, int64_t rows);

}  // namespace trainyard::engine
