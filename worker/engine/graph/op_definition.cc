// Counts the bytes that most ops move: those of all inputs and outputs.
#include "worker/engine/graph/op_definition.h"

namespace trainyard::engine {
namespace {

double BytesMoved(const Graph& graph, ValueId id, int64_t rows) {
  const Value& value = graph.value(id);
  return static_cast<double>(BytesOf(value.element, value.Elements(rows), int64_t{sizeof(float)}));
}

}  // namespace

double BytesOfAllTensors(const Graph& graph, const Node& node, int64_t rows) {
  double bytes = 0;
  for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      bytes += id == kNoValue ? 0 : BytesMoved(graph, id, rows);
    }
  }
  return bytes;
}

}  // namespace trainyard::engine
