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
      NormAttributes norm = gradient.norm();
      norm.bias = Append(gradient.inputs, node.inputs[2]);
      gradient.attributes = norm;
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
    const auto share = [&](int output, int input) {
      storage[static_cast<size_t>(node.outputs[static_cast<size_t>(output)])] =
          storage[static_cast<size_t>(node.inputs[static_cast<size_t>(input)])];
    };
    if (node.op == OpKind::kFlatten || node.op == OpKind::kFlattenGradient) {
      share(0, 0);
    }
    for (const Node::Overwrite& overwrite : node.overwrites) {
      share(overwrite.output, overwrite.input);
    }
  }
  return storage;
}

namespace {

// Which output could be written over which input, the best first: what looks at one element at a
// time, or reads all of the input before.
std::vector<Node::Overwrite> PossibleOverwrites(const Node& node) {
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
    case OpKind::kLayerNormGradient:
      return {{0, 0}};
    case OpKind::kAdd:
      return {{0, 0}, {0, 1}};
    case OpKind::kBatchNorm: {
      std::vector<Node::Overwrite> possible = {{0, 0}};
      if (node.norm().residual > 0) {
        possible.push_back({0, node.norm().residual});
      }
      return possible;
    }
    case OpKind::kBatchNormGradient: {
      const NormAttributes& norm = node.norm();
      std::vector<Node::Overwrite> possible;
      if (norm.mask > 0) {
        possible.push_back({3, 0});
        if (norm.second_gradient > 0) {
          possible.push_back({3, norm.second_gradient});
        }
      } else {
        possible.push_back({0, 0});
      }
      possible.push_back({0, 1});
      if (norm.addend > 0) {
        possible.push_back({0, norm.addend});
      }
      return possible;
    }
    default:
      return {};
  }
}

}  // namespace

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
    for (const Node::Overwrite& possible : PossibleOverwrites(node)) {
      if (node.outputs[static_cast<size_t>(possible.output)] == kNoValue ||
          node.OverwrittenBy(possible.output) >= 0) {
        continue;
      }
      const std::vector<ValueId> storage = SharedStorage(graph);
      const ValueId root =
          storage[static_cast<size_t>(node.inputs[static_cast<size_t>(possible.input)])];
      const Role role = graph.value(root).role;
      bool free = role == Role::kActivation || role == Role::kGradient;
      for (size_t v = 0; v < storage.size() && free; ++v) {
        // Values made later share only through this node or one that reads a sharer later.
        free = storage[v] != root || last_use[v] <= i;
      }
      // Nor may another output of this node lie there already.
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

StepGraph ApplyPasses(StepGraph step, const PassOptions& options) {
  if (options.fuse_residual) {
    step = FuseResidual(std::move(step));
  }
  if (options.fuse_relu) {
    step = FuseRelu(std::move(step));
  }
  if (options.fuse_gradient_sums) {
    step = FuseGradientSums(std::move(step));
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
