// Computes shapes and costs.
#include "worker/engine/graph/graph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/engine/graph/op_definition.h"

namespace trainyard::engine {

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) {
    count *= size;
  }
  return count;
}

std::string ShapeString(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

int Node::OverwrittenBy(int output) const {
  for (const Overwrite& overwrite : overwrites) {
    if (overwrite.output == output) {
      return overwrite.input;
    }
  }
  return -1;
}

int64_t BytesOf(Element element, int64_t count, int64_t real_bytes) {
  constexpr int64_t kBitsInByte = 8;
  switch (element) {
    case Element::kReal:
      return count * real_bytes;
    case Element::kByte:
      return count;
    case Element::kBit:
      return (count + kBitsInByte - 1) / kBitsInByte;
  }
  return 0;
}

ValueId Graph::Add(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

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

absl::string_view OpName(OpKind op) {
  static constexpr absl::string_view kNames[] = {
#define TY_OP(kind, name) #name,
#include "worker/engine/graph/ops.def"
#undef TY_OP
  };
  return kNames[static_cast<size_t>(op)];
}

}  // namespace trainyard::engine
