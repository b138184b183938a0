// Lowers softmax_cross_entropy. It keeps the logits and the log of the sum of their exponentials,
// from which the gradient computes the probabilities again.
#include "worker/engine/backend/cuda/kernels/loss.h"
#include "worker/engine/backend/cuda/lower_ops.h"

namespace trainyard::engine::cuda {

absl::Status LowerSoftmaxCrossEntropy(Lowering& lowering, const Node& node) {
  const ValueId logits_id = node.inputs[0];
  const Place logits = lowering.PlaceOf(logits_id);
  LossParameters loss = {.label_smoothing = static_cast<float>(node.loss().label_smoothing),
                         .labels = lowering.Pixels(logits_id),
                         .classes = lowering.Channels(logits_id)};
  const BufferId logsum = lowering.AddScratch(loss.labels * SizeOf(Type::kF32));
  lowering.softmaxes[node.outputs[0]] = {logits_id, logsum};
  float* const loss_sum = lowering.target().is_training
                              ? lowering.state().reduction + lowering.reduction().loss_offset
                              : nullptr;
  float* const correct_sum = lowering.target().is_training
                                 ? lowering.state().reduction + lowering.reduction().correct_offset
                                 : nullptr;
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program(), state = lowering.state()](const Enqueue& how) {
        LossParameters counted = loss;
        counted.counts_top5 = how.counts_top5;
        LossForward(counted, program->At(logits), program->ptr<float>(logsum), state.totals,
                    loss_sum, correct_sum, how.adds, state.control, state.loss_workspace,
                    how.stream);
      },
      {logits.buffer, logsum});
  return absl::OkStatus();
}

absl::Status LowerSoftmaxCrossEntropyGradient(Lowering& lowering, const Node& node) {
  const Lowering::Softmax softmax = lowering.softmaxes.at(node.inputs[0]);
  const Place logits = lowering.PlaceOf(softmax.logits);
  const ValueId output = node.outputs[0];
  const LossParameters loss = {.label_smoothing = static_cast<float>(node.loss().label_smoothing),
                               .labels = lowering.Pixels(softmax.logits),
                               .classes = lowering.Channels(softmax.logits)};
  // The gradient may overwrite the logits if nothing else needs them any more. They are the largest
  // value of a language model.
  bool is_kept = false;
  for (const ValueId kept : lowering.step().kept) is_kept = is_kept || kept == softmax.logits;
  const bool overwrites =
      !is_kept && logits.type == lowering.target().type && loss.classes > kExactLogitsMax;
  const Place dlogits = overwrites ? lowering.SharePlace(output, logits)
                                   : lowering.MakePlace(output, lowering.target().type);
  const BufferId logsum = softmax.logsum;
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program(), state = lowering.state()](const Enqueue& how) {
        LossGradient(loss, program->At(logits), program->ptr<float>(logsum), program->At(dlogits),
                     true, state.control, state.loss_scale, how.stream);
      },
      {logits.buffer, logsum, dlogits.buffer}, {.bytes = lowering.Bytes(softmax.logits)});
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
