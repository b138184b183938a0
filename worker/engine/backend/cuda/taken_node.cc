// Looks at the one node behind a product. The passes and the order of the gradients place a node
// there that reads nothing but the product and older values.
#include "worker/engine/backend/cuda/taken_node.h"

#include <algorithm>

namespace trainyard::engine::cuda {
namespace {

// Returns true if a node other than `reader` reads the value, or if it is kept.
bool HasOtherReaders(const StepGraph& step, const Node& reader, ValueId value) {
  const auto reads = [&](const std::vector<ValueId>& values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  return reads(step.kept) ||
         std::any_of(step.graph.nodes.begin(), step.graph.nodes.end(),
                     [&](const Node& node) { return &node != &reader && reads(node.inputs); });
}

bool IsGeluByTanh(const Node& node) {
  return (node.op == OpKind::kGelu || node.op == OpKind::kGeluGradient) &&
         node.layer<layers::Gelu>().tanh;
}

// Returns true if cuBLASLt can read the value, which must be of the type of its output.
bool IsOperand(const Lowering& lowering, ValueId value) {
  if (!lowering.HasPlace(value)) return false;
  const Place& place = lowering.PlaceOf(value);
  return place.type == lowering.target().type && place.stride > 0 &&
         place.offset * SizeOf(place.type) % kVectorBytes == 0;
}

TakenNode TakeGelu(const Lowering& lowering, const Node& product, const Node& next) {
  if (product.op != OpKind::kLinear) return {};
  return {.node = &next,
          .activation = blas::Activation::kGelu,
          .keeps_input = HasOtherReaders(lowering.step(), next, product.outputs[0])};
}

TakenNode TakeGeluGradient(const Lowering& lowering, const Node& product, const Node& next) {
  if (product.op != OpKind::kLinearInputGradient || !IsOperand(lowering, next.inputs[1]) ||
      HasOtherReaders(lowering.step(), next, product.outputs[0])) {
    return {};
  }
  return {.node = &next, .activation = blas::Activation::kGeluGradient};
}

TakenNode TakeSum(const Lowering& lowering, const Node& product, const Node& next) {
  const ValueId addend = next.inputs[next.inputs[0] == product.outputs[0] ? 1 : 0];
  // If the sum is that of the product with itself, the addend has no place yet.
  if (!IsOperand(lowering, addend) || HasOtherReaders(lowering.step(), next, product.outputs[0])) {
    return {};
  }
  return {.node = &next, .addend = addend};
}

}  // namespace

TakenNode FindTakenNode(const Lowering& lowering, const Node& product) {
  const Graph& graph = lowering.step().graph;
  const Node* const next = &product + 1;
  if (lowering.target().type == Type::kF32 || product.relu ||
      next == graph.nodes.data() + graph.nodes.size() || product.outputs[0] == graph.logits) {
    return {};
  }
  const std::vector<ValueId>& inputs = next->inputs;
  const auto reads = std::find(inputs.begin(), inputs.end(), product.outputs[0]);
  if (reads == inputs.end()) return {};
  if (next->op == OpKind::kAdd) return TakeSum(lowering, product, *next);
  if (!IsGeluByTanh(*next) || reads != inputs.begin()) return {};
  return next->op == OpKind::kGelu ? TakeGelu(lowering, product, *next)
                                   : TakeGeluGradient(lowering, product, *next);
}

}  // namespace trainyard::engine::cuda
