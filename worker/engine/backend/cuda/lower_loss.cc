// Lowers softmax_cross_entropy. In training, the call of its gradient computes both, since the
// gradient needs nothing but the logits.
#include <algorithm>

#include "worker/engine/backend/cuda/kernels/loss.h"
#include "worker/engine/backend/cuda/lower_ops.h"

namespace trainyard::engine::cuda {
namespace {

LossParameters ParametersOf(const Lowering& lowering, const Node& node, ValueId logits) {
  return {.label_smoothing = static_cast<float>(node.loss().label_smoothing),
          .labels = lowering.Pixels(logits),
          .classes = lowering.Channels(logits)};
}

bool HasGradient(const Graph& graph, ValueId probabilities) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op == OpKind::kSoftmaxCrossEntropyGradient && node.inputs[0] == probabilities;
  });
}

// Emits the loss of the logits, and their gradient unless `dlogits` has no buffer.
void EmitLoss(Lowering& lowering, const Node& node, ValueId logits_id, const Place& dlogits) {
  const Place logits = lowering.PlaceOf(logits_id);
  const LossParameters loss = ParametersOf(lowering, node, logits_id);
  // The labels are among the inputs of both nodes, the logits only of the loss.
  Traffic traffic;
  if (dlogits.buffer != kNoBuffer) traffic.bytes = lowering.Bytes(logits_id);
  LossSums sums = {.totals = lowering.state().totals};
  if (lowering.target().is_training) {
    sums.loss = lowering.state().reduction + lowering.reduction().loss_offset;
    sums.correct = lowering.state().reduction + lowering.reduction().correct_offset;
  }
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program(), state = lowering.state()](const Enqueue& how) {
        LossParameters counted = loss;
        counted.counts_top5 = how.counts_top5;
        LossSums into = sums;
        into.adds = how.adds;
        Loss(counted, program->At(logits), program->At(dlogits), /*clears_padding=*/true, into,
             how.control, state.loss_scale, state.loss_workspace, how.stream);
      },
      {logits.buffer, dlogits.buffer}, traffic);
}

}  // namespace

absl::Status LowerSoftmaxCrossEntropy(Lowering& lowering, const Node& node) {
  const ValueId logits = node.inputs[0];
  lowering.loss_logits[node.outputs[0]] = logits;
  if (!HasGradient(lowering.step().graph, node.outputs[0])) EmitLoss(lowering, node, logits, {});
  return absl::OkStatus();
}

absl::Status LowerSoftmaxCrossEntropyGradient(Lowering& lowering, const Node& node) {
  const ValueId logits_id = lowering.loss_logits.at(node.inputs[0]);
  const Place logits = lowering.PlaceOf(logits_id);
  const ValueId output = node.outputs[0];
  // The gradient may overwrite the logits if nothing else needs them any more. They are the largest
  // value of a language model.
  const std::vector<ValueId>& kept = lowering.step().kept;
  const bool overwrites = std::find(kept.begin(), kept.end(), logits_id) == kept.end() &&
                          logits.type == lowering.target().type &&
                          lowering.Channels(logits_id) > kExactLogitsMax;
  const Place dlogits = overwrites ? lowering.SharePlace(output, logits)
                                   : lowering.MakePlace(output, lowering.target().type);
  EmitLoss(lowering, node, logits_id, dlogits);
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
