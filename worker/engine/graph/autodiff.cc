// Emits the gradients of a graph, node by node from its end.
#include "worker/engine/graph/autodiff.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/engine/graph/op_definition.h"

namespace trainyard::engine {

Autodiff::Autodiff(StepGraph& step, bool input_gradient)
    : step_(step),
      wanted_(step.graph.values.size(), false),
      uses_left_(step.graph.values.size(), 0),
      gradients_(step.graph.values.size(), kNoValue) {
  const Graph& graph = step.graph;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const Role role = graph.values[i].role;
    wanted_[i] = role == Role::kParameter ||
                 (role == Role::kInput && input_gradient && graph.vocabulary == 0);
  }
  for (const Node& node : graph.nodes) {
    bool wanted = false;
    for (ValueId input : node.inputs) {
      wanted = wanted || Wants(input);
      uses_left_[static_cast<size_t>(input)] += 1;
    }
    wanted_[static_cast<size_t>(node.outputs[0])] = wanted;
  }
}

ValueId Autodiff::GradientOf(ValueId value) const {
  const ValueId gradient = gradients_[static_cast<size_t>(value)];
  TY_CHECK(gradient != kNoValue);
  return gradient;
}

ValueId Autodiff::NewGradient(ValueId primal) {
  const Value of = step_.graph.value(primal);
  Value gradient{absl::StrCat("grad.", of.name), Role::kGradient, of.shape, of.per_row, primal};
  if (of.role != Role::kParameter) {
    return step_.graph.Add(std::move(gradient));
  }
  gradient.role = Role::kParameterGradient;
  ValueId& shared = gradients_[static_cast<size_t>(primal)];
  if (shared == kNoValue) {
    shared = step_.graph.Add(std::move(gradient));
  }
  uses_left_[static_cast<size_t>(primal)] -= 1;
  if (uses_left_[static_cast<size_t>(primal)] == 0) {
    step_.parameter_gradients.push_back(shared);
  }
  return shared;
}

void Autodiff::Contribute(ValueId primal, ValueId gradient) {
  ValueId& total = gradients_[static_cast<size_t>(primal)];
  if (total == kNoValue) {
    total = gradient;
    return;
  }
  const ValueId sum = NewGradient(primal);
  Emit({OpKind::kAdd,
        absl::StrCat(step_.graph.value(primal).name, ".fan_out"),
        {total, gradient},
        {sum},
        {}});
  total = sum;
}

void Autodiff::Emit(Node node) {
  for (const ValueId output : node.outputs) {
    if (output == kNoValue || step_.graph.value(output).role != Role::kParameterGradient) {
      continue;
    }
    const auto parameter = static_cast<size_t>(step_.graph.value(output).primal);
    node.is_partial = node.is_partial || uses_left_[parameter] > 0;
    node.adds = node.adds || !written_.insert(output).second;
  }
  step_.graph.nodes.push_back(std::move(node));
}

void Autodiff::EmitInputGradient(const Node& node, OpKind op, const std::vector<ValueId>& saved) {
  const ValueId x = node.inputs[0];
  if (!Wants(x)) return;
  const ValueId dx = NewGradient(x);
  std::vector<ValueId> inputs = {GradientOf(node.outputs[0])};
  inputs.insert(inputs.end(), saved.begin(), saved.end());
  Emit({op, node.name, std::move(inputs), {dx}, node.attributes});
  Contribute(x, dx);
}

void Autodiff::Run() {
  const size_t forward_nodes = step_.graph.nodes.size();
  for (size_t i = forward_nodes; i-- > 0;) {
    const Node node = step_.graph.nodes[i];  // a copy, because Emit grows the vector
    if (Wants(node.outputs[0])) {
      Definition(node.op).gradient(*this, node);
    }
  }
  if (Wants(step_.graph.input)) {
    step_.input_gradient = gradients_[static_cast<size_t>(step_.graph.input)];
  }
}

}  // namespace trainyard::engine
