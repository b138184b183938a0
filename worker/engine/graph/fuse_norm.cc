// Lets batch_norm and its gradient take over work from the nodes around them. They are limited by
// memory traffic, and each node that is fused saves a pass over memory.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_edit.h"
#include "worker/engine/graph/passes.h"

namespace trainyard::engine {
namespace {

// batch_norm, add and relu of the end of a residual block, and their gradients, by node number.
struct ResidualEnd {
  int norm = kNobody;
  int add = kNobody;
  int relu = kNobody;
  int relu_gradient = kNobody;  // kNobody in an evaluation
  int norm_gradient = kNobody;
  ValueId residual = kNoValue;
};

// Fills in the backward half. Returns false if the fused node could not do what it does.
bool FindGradients(const std::vector<Node>& nodes, const Uses& uses, ResidualEnd& end) {
  const Node& norm = nodes[static_cast<size_t>(end.norm)];
  const ValueId y = nodes[static_cast<size_t>(end.relu)].outputs[0];
  for (const int consumer : uses.consumers[static_cast<size_t>(y)]) {
    if (consumer != kNobody && nodes[static_cast<size_t>(consumer)].op == OpKind::kReluGradient &&
        nodes[static_cast<size_t>(consumer)].inputs[1] == y) {
      end.relu_gradient = consumer;
    }
  }
  if (end.relu_gradient == kNobody) {
    return false;
  }
  const ValueId dz = nodes[static_cast<size_t>(end.relu_gradient)].outputs[0];
  const std::vector<int>& readers = uses.consumers[static_cast<size_t>(dz)];
  for (const int reader : readers) {
    if (reader != kNobody) {
      const Node& node = nodes[static_cast<size_t>(reader)];
      if (node.op == OpKind::kBatchNormGradient && node.inputs[0] == dz &&
          node.inputs[1] == norm.inputs[0] && node.inputs[2] == norm.inputs[1]) {
        end.norm_gradient = reader;
      }
    }
  }
  // All other readers need dz computed.
  return end.norm_gradient != kNobody &&
         std::all_of(readers.begin(), readers.end(), [&end](int reader) {
           return reader == kNobody || reader >= end.norm_gradient;
         });
}

std::optional<ResidualEnd> FindResidualEnd(const std::vector<Node>& nodes, const Uses& uses,
                                           int add) {
  ResidualEnd end;
  end.add = add;
  const Node& sum = nodes[static_cast<size_t>(add)];
  end.relu = uses.SoleConsumer(sum.outputs[0]);
  if (end.relu == kNobody || nodes[static_cast<size_t>(end.relu)].op != OpKind::kRelu ||
      sum.inputs[0] == sum.inputs[1]) {
    return std::nullopt;
  }
  // Returns the later one of two norms, whose gradient comes first.
  for (size_t i = 0; i < 2; ++i) {
    const int producer = uses.producer[static_cast<size_t>(sum.inputs[i])];
    const int other = uses.producer[static_cast<size_t>(sum.inputs[1 - i])];
    if (producer > std::max(end.norm, other) && uses.SoleConsumer(sum.inputs[i]) == add &&
        nodes[static_cast<size_t>(producer)].op == OpKind::kBatchNorm &&
        !nodes[static_cast<size_t>(producer)].relu) {
      end.norm = producer;
      end.residual = sum.inputs[1 - i];
    }
  }
  if (end.norm == kNobody) {
    return std::nullopt;
  }
  const bool is_training = nodes[static_cast<size_t>(end.norm)].norm().batch_statistics;
  if (is_training && !FindGradients(nodes, uses, end)) {
    return std::nullopt;
  }
  return end;
}

void Fuse(StepGraph& step, const ResidualEnd& end, std::vector<bool>& erased) {
  std::vector<Node>& nodes = step.graph.nodes;
  Node& norm = nodes[static_cast<size_t>(end.norm)];
  const ValueId normalized = norm.outputs[0];
  const ValueId sum = nodes[static_cast<size_t>(end.add)].outputs[0];
  const ValueId y = nodes[static_cast<size_t>(end.relu)].outputs[0];
  NormAttributes attributes = norm.norm();
  attributes.residual = Append(norm.inputs, end.residual);
  norm.attributes = attributes;
  norm.relu = true;
  norm.outputs[0] = y;
  erased[static_cast<size_t>(end.add)] = true;
  erased[static_cast<size_t>(end.relu)] = true;
  // The gradient of an intermediate value is now the gradient of the value that replaces it.
  for (Value& value : step.graph.values) {
    if (value.primal == normalized || value.primal == sum) {
      value.primal = y;
    }
  }
  if (end.norm_gradient == kNobody) {
    return;
  }
  const Value of = step.graph.value(y);
  const ValueId mask = step.graph.Add({absl::StrCat(of.name, ".mask"),
                                       Role::kActivation,
                                       of.shape,
                                       of.per_row,
                                       kNoValue,
                                       {},
                                       Element::kBit});
  norm.outputs.push_back(mask);
  const Node& relu_gradient = nodes[static_cast<size_t>(end.relu_gradient)];
  Node& gradient = nodes[static_cast<size_t>(end.norm_gradient)];
  NormAttributes of_gradient = gradient.norm();
  gradient.inputs[0] = relu_gradient.inputs[0];
  of_gradient.mask = Append(gradient.inputs, mask);
  gradient.attributes = of_gradient;
  gradient.relu = true;
  gradient.outputs.push_back(relu_gradient.outputs[0]);
  erased[static_cast<size_t>(end.relu_gradient)] = true;
}

}  // namespace

StepGraph FuseResidual(StepGraph step) {
  const Uses uses(step);
  std::vector<bool> erased(step.graph.nodes.size(), false);
  for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
    if (step.graph.nodes[i].op != OpKind::kAdd) {
      continue;
    }
    const auto end = FindResidualEnd(step.graph.nodes, uses, static_cast<int>(i));
    if (end.has_value()) {
      Fuse(step, *end, erased);
    }
  }
  Erase(step.graph.nodes, erased);
  return step;
}

StepGraph FuseGradientSums(StepGraph step) {
  std::vector<Node>& nodes = step.graph.nodes;
  const Uses uses(step);
  std::vector<bool> erased(nodes.size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& add = nodes[i];
    if (add.op != OpKind::kAdd || step.graph.value(add.outputs[0]).role != Role::kGradient) {
      continue;
    }
    // One operand of the sum must be computed by a batch_norm_gradient for no other reader, after
    // the other operand.
    for (size_t k = 0; k < 2 && !erased[i]; ++k) {
      const int maker = uses.producer[static_cast<size_t>(add.inputs[k])];
      const int other = uses.producer[static_cast<size_t>(add.inputs[1 - k])];
      if (maker == kNobody || maker <= other ||
          nodes[static_cast<size_t>(maker)].op != OpKind::kBatchNormGradient ||
          nodes[static_cast<size_t>(maker)].outputs[0] != add.inputs[k] ||
          uses.SoleConsumer(add.inputs[k]) != static_cast<int>(i)) {
        continue;
      }
      Node& norm_gradient = nodes[static_cast<size_t>(maker)];
      NormAttributes attributes = norm_gradient.norm();
      if (attributes.addend > 0) {
        continue;
      }
      attributes.addend = Append(norm_gradient.inputs, add.inputs[1 - k]);
      norm_gradient.attributes = attributes;
      norm_gradient.outputs[0] = add.outputs[0];
      erased[i] = true;
    }
    // It may also be a sum that only the gradient at the end of a residual block reads.
    const int reader = uses.SoleConsumer(add.outputs[0]);
    if (erased[i] || reader == kNobody) {
      continue;
    }
    Node& norm_gradient = nodes[static_cast<size_t>(reader)];
    if (norm_gradient.op != OpKind::kBatchNormGradient || norm_gradient.norm().mask == 0 ||
        norm_gradient.norm().second_gradient > 0 || norm_gradient.inputs[0] != add.outputs[0]) {
      continue;
    }
    NormAttributes attributes = norm_gradient.norm();
    norm_gradient.inputs[0] = add.inputs[0];
    attributes.second_gradient = Append(norm_gradient.inputs, add.inputs[1]);
    norm_gradient.attributes = attributes;
    erased[i] = true;
  }
  Erase(nodes, erased);
  return step;
}

}  // namespace trainyard::engine
