// softmax_cross_entropy: the logits stay, and the log of the sum of their exponentials, from which
// the gradient computes the probabilities again.
#include "worker/engine/backend/cuda/compiler.h"

namespace trainyard::engine::cuda {

void Compiler::LowerLoss(const Node& node) {
  const ValueId logits_id = node.inputs[0];
  const Place logits = PlaceOf(logits_id);
  LossParameters loss = {.label_smoothing = static_cast<float>(node.loss().label_smoothing),
                         .labels = Pixels(logits_id),
                         .classes = Channels(logits_id)};
  const BufferId logsum = AddScratch(loss.labels * SizeOf(Type::kF32));
  softmaxes_[node.outputs[0]] = {logits_id, logsum};
  float* const loss_sum = target_.is_training ? state_.reduction + reduction_.loss_offset : nullptr;
  float* const correct_sum =
      target_.is_training ? state_.reduction + reduction_.correct_offset : nullptr;
  EmitKernel(node,
             [=, program = &program_, state = state_](const Enqueue& how) {
               LossParameters counted = loss;
               counted.counts_top5 = how.counts_top5;
               LossForward(counted, program->At(logits), program->ptr<float>(logsum), state.totals,
                           loss_sum, correct_sum, how.adds, state.control, state.loss_workspace,
                           how.stream);
             },
             {logits.buffer, logsum});
}

void Compiler::LowerLossGradient(const Node& node) {
  const Softmax softmax = softmaxes_.at(node.inputs[0]);
  const Place logits = PlaceOf(softmax.logits);
  const ValueId output = node.outputs[0];
  const LossParameters loss = {.label_smoothing = static_cast<float>(node.loss().label_smoothing),
                               .labels = Pixels(softmax.logits),
                               .classes = Channels(softmax.logits)};
  // Over the logits where nobody wants them any more: they are the largest value of a language
  // model.
  bool is_kept = false;
  for (const ValueId kept : step_.kept) is_kept = is_kept || kept == softmax.logits;
  const bool overwrites = !is_kept && logits.type == target_.type && loss.classes > kExactLogitsMax;
  const Place dlogits = overwrites ? SharePlace(output, logits) : MakePlace(output, target_.type);
  const BufferId logsum = softmax.logsum;
  EmitKernel(node,
             [=, program = &program_, state = state_](const Enqueue& how) {
               LossGradient(loss, program->At(logits), program->ptr<float>(logsum),
                            program->At(dlogits), true, state.control, state.loss_scale,
                            how.stream);
             },
             {logits.buffer, logsum, dlogits.buffer});
}

}  // namespace trainyard::engine::cuda
