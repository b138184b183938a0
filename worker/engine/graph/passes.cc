#include "worker/engine/graph/passes.h"

#include <algorithm>
#include <utility>

namespace trainyard::engine {
namespace {

constexpr int kNobody = -1;

// Who computes and who reads each value, by node number.
struct Uses {
  std::vector<int> producer;
  std::vector<std::vector<int>> consumers;

  explicit Uses(const StepGraph& step)
      : producer(step.graph.values.size(), kNobody), consumers(step.graph.values.size()) {
    for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
      for (ValueId input : step.graph.nodes[i].inputs) {
        consumers[static_cast<size_t>(input)].push_back(static_cast<int>(i));
      }
      for (ValueId output : step.graph.nodes[i].outputs) {
        if (output != kNoValue) {
          producer[static_cast<size_t>(output)] = static_cast<int>(i);
        }
      }
    }
    for (ValueId kept : step.kept) {
      consumers[static_cast<size_t>(kept)].push_back(kNobody);
    }
  }

  // The only node that reads the value, or kNobody.
  int SoleConsumer(ValueId value) const {
    const std::vector<int>& nodes = consumers[static_cast<size_t>(value)];
    return nodes.size() == 1 ? nodes[0] : kNobody;
  }
};

// Drops the nodes marked.
void Erase(std::vector<Node>& nodes, const std::vector<bool>& erased) {
  std::vector<Node> left;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!erased[i]) {
      left.push_back(std::move(nodes[i]));
    }
  }
  nodes = std::move(left);
}

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
    // Backward: relu_gradient(dy, rectified) -> dz, read by batch_norm_gradient alone.
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
      gradient.inputs.push_back(node.inputs[2]);
      gradient.relu = true;
      erased[static_cast<size_t>(relu_gradient)] = true;
    }
    // What was the gradient of the intermediate value is now that of what stands in its place.
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
    // The rectified value went into this pool: its gradient would otherwise be a sum.
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

std::vector<ValueId> SharedStorage(const Graph& graph) {
  std::vector<ValueId> storage(graph.values.size());
  for (size_t i = 0; i < storage.size(); ++i) {
    storage[i] = static_cast<ValueId>(i);
  }
  for (const Node& node : graph.nodes) {
    int shared = node.in_place;
    if (node.op == OpKind::kFlatten || node.op == OpKind::kFlattenGradient) {
      shared = 0;
    }
    if (shared >= 0) {
      storage[static_cast<size_t>(node.outputs[0])] =
          storage[static_cast<size_t>(node.inputs[static_cast<size_t>(shared)])];
    }
  }
  return storage;
}

StepGraph ReuseInPlace(StepGraph step) {
  Graph& graph = step.graph;
  const int end = static_cast<int>(graph.nodes.size());
  std::vector<int> last_use(graph.values.size(), kNobody);
  for (int i = 0; i < end; ++i) {
    for (ValueId input : graph.nodes[static_cast<size_t>(i)].inputs) {
      last_use[static_cast<size_t>(input)] = i;
    }
  }
  for (ValueId kept : step.kept) {
    last_use[static_cast<size_t>(kept)] = end;
  }
  for (int i = 0; i < end; ++i) {
    Node& node = graph.nodes[static_cast<size_t>(i)];
    int candidates = 0;
    switch (node.op) {
      case OpKind::kRelu:
      case OpKind::kTanh:
      case OpKind::kSigmoid:
      case OpKind::kGelu:
      case OpKind::kDropout:
      case OpKind::kPositionEmbedding:
      case OpKind::kReluGradient:
      case OpKind::kTanhGradient:
      case OpKind::kSigmoidGradient:
      case OpKind::kGeluGradient:
      case OpKind::kBatchNormGradient:
      case OpKind::kLayerNormGradient:
        candidates = 1;
        break;
      case OpKind::kAdd:
        candidates = 2;
        break;
      default:
        break;
    }
    if (node.outputs[0] == kNoValue) {
      continue;
    }
    const std::vector<ValueId> storage = SharedStorage(graph);
    for (int candidate = 0; candidate < candidates && node.in_place < 0; ++candidate) {
      const ValueId root =
          storage[static_cast<size_t>(node.inputs[static_cast<size_t>(candidate)])];
      const Role role = graph.value(root).role;
      bool free = role == Role::kActivation || role == Role::kGradient;
      for (size_t v = 0; v < storage.size() && free; ++v) {
        // Values made later share only through this node or one that reads a sharer later.
        free = storage[v] != root || last_use[v] <= i;
      }
      if (free) {
        node.in_place = candidate;
      }
    }
  }
  return step;
}

StepGraph ApplyPasses(StepGraph step, const PassOptions& options) {
  if (options.fuse_relu) {
    step = FuseRelu(std::move(step));
  }
  if (options.fuse_relu_into_max_pool_gradient) {
    step = FuseReluIntoMaxPoolGradient(std::move(step));
  }
  if (options.remove_dead_code) {
    step = RemoveDeadCode(std::move(step));
  }
  if (options.reuse_in_place) {
    step = ReuseInPlace(std::move(step));
  }
  return step;
}

}  // namespace trainyard::engine
