#include "worker/engine/graph/graph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/engine/graph/ops/ops.h"

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

Cost NodeCost(const Graph& graph, const Node& node, int64_t rows) {
  Cost cost;
  cost.flops = Definition(node.op).flops(graph, node, rows);
  // What only sees its input in another shape, or as a part, moves nothing.
  if (node.op == OpKind::kFlatten || node.op == OpKind::kFlattenGradient ||
      node.op == OpKind::kStageOutput || (node.op == OpKind::kSlice && node.slice().is_view)) {
    return cost;
  }
  for (size_t i = 0; node.op == OpKind::kConcat && i < node.inputs.size(); ++i) {
    const std::vector<bool>& placed = node.concat().placed;
    cost.bytes += placed.empty() || !placed[i] ? 2 * BytesMoved(graph, node.inputs[i], rows) : 0;
  }
  if (node.op == OpKind::kConcat) {
    return cost;
  }
  for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      cost.bytes += id == kNoValue ? 0 : BytesMoved(graph, id, rows);
    }
  }
  return cost;
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
  return Definition(op).name;
}

std::string RenderGraph(const Graph& graph) {
  std::string text;
  auto names = [&graph](const std::vector<ValueId>& ids) {
    return absl::StrJoin(ids, ", ", [&graph](std::string* out, ValueId id) {
      if (id == kNoValue) {
        absl::StrAppend(out, "-");
      } else {
        absl::StrAppend(out, graph.value(id).name, ShapeString(graph.value(id).shape));
      }
    });
  };
  for (const Node& node : graph.nodes) {
    absl::StrAppend(&text, names(node.outputs), " = ", OpName(node.op), node.relu ? "+relu" : "",
                    "(", names(node.inputs), ")",
                    absl::StrJoin(node.overwrites, "",
                                  [](std::string* out, const Node::Overwrite& overwrite) {
                                    absl::StrAppend(out, " output ", overwrite.output,
                                                    " over input ", overwrite.input);
                                  }),
                    "\n");
  }
  return text;
}

}  // namespace trainyard::engine
