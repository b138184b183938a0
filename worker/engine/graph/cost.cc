// Adds up the costs that the definitions of the ops give.
#include "worker/engine/graph/cost.h"

#include "worker/engine/graph/op_definition.h"

namespace trainyard::engine {

Cost NodeCost(const Graph& graph, const Node& node, int64_t rows) {
  const OpDefinition& definition = Definition(node.op);
  return {definition.flops(graph, node, rows), definition.bytes(graph, node, rows)};
}

Cost GraphCost(const Graph& graph, int64_t rows) {
  Cost total;
  for (const Node& node : graph.nodes) {
    const Cost cost = NodeCost(graph, node, rows);
    total.flops += cost.flops;
    total.bytes += cost.bytes;
  }
  return total;
}

}  // namespace trainyard::engine
