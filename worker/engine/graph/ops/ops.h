// Declares the definitions of all ops, and the functions that several of them use.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/graph/op_definition.h"

namespace trainyard::engine {

#define TY_OP(kind, name) extern const OpDefinition k##kind##Definition;
#include "worker/engine/graph/ops.def"
#undef TY_OP

// Returns `factor` operations for each element of the node's first input.
template <int factor>
double FlopsPerElement(const Graph& graph, const Node& node, int64_t rows) {
  return factor * static_cast<double>(graph.value(node.inputs[0]).Elements(rows));
}

// Returns 0, for ops that compute nothing, and for those that move nothing.
inline double Nothing(const Graph&, const Node&, int64_t) {
  return 0;
}

// Says that the first output may be written over the first input.
inline std::vector<Node::Overwrite> OverFirstInput(const Node&) {
  return {{0, 0}};
}

}  // namespace trainyard::engine
