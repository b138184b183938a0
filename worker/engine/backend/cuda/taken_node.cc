// Looks at the one node behind another. Layers and the order of the gradients place a node there
// that reads nothing but the output of the first and older values.
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

// Returns true if the value is there, in the type of activations, where cuBLASLt can read it.
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

// Returns the node after this one if it reads the first output of this one, and null otherwise.
const Node* NextReader(const Graph& graph, const Node& node) {
  const Node* const next = &node + 1;
  if (next == graph.nodes.data() + graph.nodes.size()) return nullptr;
  const bool reads =
      node.outputs[0] != kNoValue &&
      std::find(next->inputs.begin(), next->inputs.end(), node.outputs[0]) != next->inputs.end();
  return reads ? next : nullptr;
}

}  // namespace

TakenNode FindTakenSum(const Lowering& lowering, const Node& node) {
  const Node* const next = NextReader(lowering.step().graph, node);
  if (next == nullptr || next->op != OpKind::kAdd) return {};
  const ValueId addend = next->inputs[next->inputs[0] == node.outputs[0] ? 1 : 0];
  // If the sum is that of the output with itself, the addend has no place yet.
  if (!IsOperand(lowering, addend) || HasOtherReaders(lowering.step(), *next, node.outputs[0])) {
    return {};
  }
  return {.node = next, .addend = addend};
}

TakenNode FindTakenNode(const Lowering& lowering, const Node& product) {
  const Graph& graph = lowering.step().graph;
  const Node* const next = NextReader(graph, product);
  if (lowering.target().type == Type::kF32 || product.relu || next == nullptr ||
      product.outputs[0] == graph.logits) {
    return {};
  }
  if (!IsGeluByTanh(*next)) return FindTakenSum(lowering, product);
  if (next->inputs[0] != product.outputs[0]) return {};
  return next->op == OpKind::kGelu ? TakeGelu(lowering, product, *next)
                                   : TakeGeluGradient(lowering, product, *next);
}

}  // namespace trainyard::engine::cuda
