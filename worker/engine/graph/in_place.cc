// Finds values that may share memory: element-wise results written over their inputs, and parts
// within their whole.
#include <algorithm>

#include "worker/engine/graph/graph_edit.h"
#include "worker/engine/graph/op_definition.h"
#include "worker/engine/graph/passes.h"
#include "worker/engine/graph/shared_storage.h"

namespace trainyard::engine {

namespace {

// Returns true if only batch_norm, as its input, or batch_norm_gradient, as dy or x, reads the
// value.
bool OnlyNormsRead(const StepGraph& step, const Uses& uses, ValueId value) {
  const std::vector<int>& readers = uses.consumers[static_cast<size_t>(value)];
  return std::all_of(readers.begin(), readers.end(), [&](int reader) {
    if (reader == kNobody) {
      return false;
    }
    const Node& node = step.graph.nodes[static_cast<size_t>(reader)];
    const size_t places = node.op == OpKind::kBatchNorm           ? 1
                          : node.op == OpKind::kBatchNormGradient ? 2
                                                                  : 0;
    return std::count(node.inputs.begin(), node.inputs.end(), value) ==
           std::count(node.inputs.begin(), node.inputs.begin() + static_cast<int64_t>(places),
                      value);
  });
}

bool ANormMakes(const StepGraph& step, const Uses& uses, ValueId value) {
  const int producer = uses.producer[static_cast<size_t>(value)];
  if (producer == kNobody) {
    return false;
  }
  const Node& node = step.graph.nodes[static_cast<size_t>(producer)];
  return (node.op == OpKind::kBatchNorm || node.op == OpKind::kBatchNormGradient) &&
         node.outputs[0] == value;
}

}  // namespace

StepGraph PlaceParts(StepGraph step) {
  const Uses uses(step);
  for (Node& node : step.graph.nodes) {
    if (node.op == OpKind::kSlice) {
      SliceAttributes slice = node.slice();
      slice.is_view = OnlyNormsRead(step, uses, node.outputs[0]);
      node.attributes = slice;
    }
    if (node.op == OpKind::kConcat) {
      ConcatAttributes concat;
      for (const ValueId part : node.inputs) {
        concat.placed.push_back(uses.SoleConsumer(part) != kNobody && ANormMakes(step, uses, part));
      }
      node.attributes = concat;
    }
  }
  return step;
}

namespace {

// These are values that lie within another one.
std::vector<bool> FindParts(const Graph& graph) {
  std::vector<bool> is_part(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op == OpKind::kSlice && node.slice().is_view) {
      is_part[static_cast<size_t>(node.outputs[0])] = true;
    }
    for (size_t i = 0; node.op == OpKind::kConcat && i < node.concat().placed.size(); ++i) {
      if (node.concat().placed[i]) {
        is_part[static_cast<size_t>(node.inputs[i])] = true;
      }
    }
  }
  return is_part;
}

}  // namespace

StepGraph ReuseInPlace(StepGraph step) {
  Graph& graph = step.graph;
  const int end = static_cast<int>(graph.nodes.size());
  const std::vector<bool> is_part = FindParts(graph);
  std::vector<int> last_use(graph.values.size(), kNobody);
  for (int i = 0; i < end; ++i) {
    for (ValueId input : graph.nodes[static_cast<size_t>(i)].inputs) {
      last_use[static_cast<size_t>(input)] = i;
    }
  }
  for (ValueId kept : step.kept) {
    last_use[static_cast<size_t>(kept)] = end;
  }
  for (const Node& node : graph.nodes) {
    if (node.op == OpKind::kSlice && node.slice().is_view) {
      int& of_whole = last_use[static_cast<size_t>(node.inputs[0])];
      of_whole = std::max(of_whole, last_use[static_cast<size_t>(node.outputs[0])]);
    }
  }
  for (int i = 0; i < end; ++i) {
    Node& node = graph.nodes[static_cast<size_t>(i)];
    const auto overwrites = Definition(node.op).overwrites;
    if (overwrites == nullptr) {
      continue;
    }
    for (const Node::Overwrite& possible : overwrites(node)) {
      if (node.outputs[static_cast<size_t>(possible.output)] == kNoValue ||
          node.OverwrittenBy(possible.output) >= 0 ||
          is_part[static_cast<size_t>(node.outputs[static_cast<size_t>(possible.output)])] ||
          is_part[static_cast<size_t>(node.inputs[static_cast<size_t>(possible.input)])]) {
        continue;
      }
      const std::vector<ValueId> storage = SharedStorage(graph);
      const ValueId root =
          storage[static_cast<size_t>(node.inputs[static_cast<size_t>(possible.input)])];
      const Role role = graph.value(root).role;
      bool free = role == Role::kActivation || role == Role::kGradient;
      for (size_t v = 0; v < storage.size() && free; ++v) {
        // Values that are made later can share only through this node or through one that reads a
        // sharer later.
        free = storage[v] != root || last_use[v] <= i;
      }
      // Another output of this node must not lie there already.
      for (const ValueId output : node.outputs) {
        free = free && (output == kNoValue || storage[static_cast<size_t>(output)] != root);
      }
      if (free) {
        node.overwrites.push_back(possible);
      }
    }
  }
  return step;
}

}  // namespace trainyard::engine
