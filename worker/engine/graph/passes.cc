// Implements passes that fuse a rectifier into the nodes around it and that drop dead code, and
// applies all passes.
#include "worker/engine/graph/passes.h"

#include <algorithm>
#include <utility>

#include "worker/engine/graph/graph_edit.h"

namespace trainyard::engine {
namespace {

bool CanRectify(const Node& node) {
  return !node.relu && (node.op == OpKind::kConv2d || node.op == OpKind::kLinear ||
                        node.op == OpKind::kBatchNorm);
}

}  // namespace

StepGraph FuseRelu(StepGraph step) {
  std::vector<Node>& nodes = step.graph.nodes;
  const Uses uses(step);
  std::vector<bool> erased(nodes.size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = nodes[i];
    const int sole = CanRectify(node) ? uses.SoleConsumer(node.outputs[0]) : kNobody;
    if (sole == kNobody || nodes[static_cast<size_t>(sole)].op != OpKind::kRelu) {
      continue;
    }
    const ValueId rectified = nodes[static_cast<size_t>(sole)].outputs[0];
    // This is the backward half: relu_gradient(dy, rectified) -> dz, which only batch_norm_gradient
    // reads.
    int relu_gradient = kNobody;
    int norm_gradient = kNobody;
    if (node.op == OpKind::kBatchNorm && node.norm().batch_statistics) {
      for (int consumer : uses.consumers[static_cast<size_t>(rectified)]) {
        if (consumer != kNobody &&
            nodes[static_cast<size_t>(consumer)].op == OpKind::kReluGradient) {
          relu_gradient = consumer;
          norm_gradient = uses.SoleConsumer(nodes[static_cast<size_t>(consumer)].outputs[0]);
        }
      }
      if (relu_gradient == kNobody || norm_gradient == kNobody) {
        continue;
      }
      Node& gradient = nodes[static_cast<size_t>(norm_gradient)];
      gradient.inputs[0] = nodes[static_cast<size_t>(relu_gradient)].inputs[0];
      NormAttributes norm = gradient.norm();
      norm.bias = Append(gradient.inputs, node.inputs[2]);
      gradient.attributes = norm;
      gradient.relu = true;
      erased[static_cast<size_t>(relu_gradient)] = true;
    }
    // The gradient of the intermediate value is now the gradient of the value that replaces it.
    for (Value& value : step.graph.values) {
      if (value.primal == node.outputs[0]) {
        value.primal = rectified;
      }
    }
    node.relu = true;
    node.outputs[0] = rectified;
    erased[static_cast<size_t>(sole)] = true;
  }
  Erase(nodes, erased);
  return step;
}

StepGraph FuseReluIntoMaxPoolGradient(StepGraph step) {
  std::vector<Node>& nodes = step.graph.nodes;
  const Uses uses(step);
  std::vector<bool> erased(nodes.size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& relu_gradient = nodes[i];
    if (relu_gradient.op != OpKind::kReluGradient) {
      continue;
    }
    const ValueId dy = relu_gradient.inputs[0];
    const int producer = uses.producer[static_cast<size_t>(dy)];
    if (producer == kNobody || uses.SoleConsumer(dy) != static_cast<int>(i)) {
      continue;
    }
    Node& pool_gradient = nodes[static_cast<size_t>(producer)];
    if (pool_gradient.op != OpKind::kMaxPoolGradient) {
      continue;
    }
    // The rectified value must go only into this pool, because its gradient would otherwise be a
    // sum.
    Node& pool =
        nodes[static_cast<size_t>(uses.producer[static_cast<size_t>(pool_gradient.inputs[1])])];
    pool.relu = true;
    pool_gradient.relu = true;
    pool_gradient.outputs[0] = relu_gradient.outputs[0];
    erased[i] = true;
  }
  Erase(nodes, erased);
  return step;
}

StepGraph RemoveDeadCode(StepGraph step) {
  std::vector<Node>& nodes = step.graph.nodes;
  std::vector<bool> live(step.graph.values.size(), false);
  for (ValueId kept : step.kept) {
    live[static_cast<size_t>(kept)] = true;
  }
  for (ValueId gradient : step.parameter_gradients) {
    live[static_cast<size_t>(gradient)] = true;
  }
  if (step.graph.stage_output != kNoValue) {
    live[static_cast<size_t>(step.graph.stage_output)] = true;
  }
  std::vector<bool> erased(nodes.size(), false);
  for (size_t i = nodes.size(); i-- > 0;) {
    Node& node = nodes[i];
    const bool needed =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&live](ValueId output) {
          return output != kNoValue && live[static_cast<size_t>(output)];
        });
    if (!needed) {
      erased[i] = true;
      continue;
    }
    if (node.op == OpKind::kMaxPool && node.outputs[1] != kNoValue &&
        !live[static_cast<size_t>(node.outputs[1])]) {
      node.outputs[1] = kNoValue;
    }
    for (ValueId input : node.inputs) {
      live[static_cast<size_t>(input)] = true;
    }
  }
  Erase(nodes, erased);
  return step;
}

StepGraph ApplyPasses(StepGraph step, const PassOptions& options) {
  for (const Pass& pass : kPasses) {
    if (options.*pass.option) {
      step = pass.apply(std::move(step));
    }
  }
  return step;
}

}  // namespace trainyard::engine
