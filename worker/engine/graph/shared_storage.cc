// Finds the values of a graph that share memory.
#include "worker/engine/graph/shared_storage.h"

#include "worker/engine/graph/op_definition.h"

namespace trainyard::engine {

std::vector<ValueId> SharedStorage(const Graph& graph) {
  std::vector<ValueId> storage(graph.values.size());
  for (size_t i = 0; i < storage.size(); ++i) {
    storage[i] = static_cast<ValueId>(i);
  }
  for (const Node& node : graph.nodes) {
    const auto share = [&](int output, int input) {
      storage[static_cast<size_t>(node.outputs[static_cast<size_t>(output)])] =
          storage[static_cast<size_t>(node.inputs[static_cast<size_t>(input)])];
    };
    if (Definition(node.op).is_alias) {
      share(0, 0);
    }
    for (const Node::Overwrite& overwrite : node.overwrites) {
      share(overwrite.output, overwrite.input);
    }
  }
  return storage;
}

}  // namespace trainyard::engine
