// Computes outputs of batch_norm again for the gradients of the convolutions that read them. This
// costs a pass over memory, and saves half of what the layers between two convolutions keep.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_edit.h"
#include "worker/engine/graph/passes.h"

namespace trainyard::engine {
namespace {

// Returns the first gradient that reads the value, or kNobody if there is none, or if anything but
// the gradient of a convolution's weights reads it backward.
int FirstGradient(const StepGraph& step, const Uses& uses, ValueId value) {
  int first = kNobody;
  for (const int reader : uses.consumers[static_cast<size_t>(value)]) {
    if (reader == kNobody) {
      return kNobody;
    }
    const Node& node = step.graph.nodes[static_cast<size_t>(reader)];
    const bool is_forward =
        std::all_of(node.outputs.begin(), node.outputs.end(), [&step](ValueId output) {
          return output == kNoValue || step.graph.value(output).role == Role::kActivation;
        });
    if (is_forward) {
      continue;
    }
    if (node.op != OpKind::kConv2dParameterGradient) {
      return kNobody;
    }
    first = first == kNobody ? reader : std::min(first, reader);
  }
  return first;
}

}  // namespace

StepGraph RecomputeNorms(StepGraph step) {
  const Uses uses(step);
  std::vector<std::vector<Node>> before(step.graph.nodes.size());
  const size_t count = step.graph.nodes.size();
  for (size_t i = 0; i < count; ++i) {
    const Node norm = step.graph.nodes[i];
    if (norm.op != OpKind::kBatchNorm || !norm.norm().batch_statistics ||
        norm.norm().residual > 0) {
      continue;
    }
    const ValueId y = norm.outputs[0];
    const int first = FirstGradient(step, uses, y);
    if (first == kNobody) {
      continue;
    }
    Value again = step.graph.value(y);
    absl::StrAppend(&again.name, ".again");
    const ValueId clone = step.graph.Add(std::move(again));
    NormAttributes attributes = norm.norm();
    attributes.batch_statistics = false;
    Node node{OpKind::kBatchNorm,
              absl::StrCat(norm.name, ".again"),
              {norm.inputs[0], norm.inputs[1], norm.inputs[2], norm.outputs[1], norm.outputs[2]},
              {clone},
              attributes};
    node.relu = norm.relu;
    before[static_cast<size_t>(first)].push_back(std::move(node));
    for (const int reader : uses.consumers[static_cast<size_t>(y)]) {
      if (reader >= first) {
        std::vector<ValueId>& inputs = step.graph.nodes[static_cast<size_t>(reader)].inputs;
        std::replace(inputs.begin(), inputs.end(), y, clone);
      }
    }
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < count; ++i) {
    std::move(before[i].begin(), before[i].end(), std::back_inserter(nodes));
    nodes.push_back(std::move(step.graph.nodes[i]));
  }
  step.graph.nodes = std::move(nodes);
  return step;
}

}  // namespace trainyard::engine
