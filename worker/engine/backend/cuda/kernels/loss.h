// Declares softmax_cross_entropy (graph/ops/loss.cc). Probabilities are not kept. Their gradient
// computes them again from the logits and `logsum`, the log of the sum of a vector's exponentials.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

// The totals of a batch, like Evaluation, for the host to read.
struct LossTotals {
  double loss = 0;  // sum over the labels
  uint64_t correct = 0;
  uint64_t top5 = 0;
};

struct LossParameters {
  float label_smoothing = 0;
  int64_t labels = 0;  // the number of vectors of logits
  int64_t classes = 0;
  bool counts_top5 = false;  // as in backend/judge.h
};

// Returns the bytes of the workspace, which must be zero before its first use. Each use leaves it
// ready for the next.
int64_t LossWorkspace(int64_t labels);
// Computes the loss. logits is [labels, classes], and logsum is f32 [labels]. Sums are taken in a
// fixed order, and labels come from `control`. A logit that is not finite makes the loss not
// finite, except for -inf beside other logits. loss_sum and correct_sum are the sums of the step:
// weight * mean loss and weight * correct / labels are added to them, or written unless `adds`.
// They and `totals` may be null.
void LossForward(const LossParameters& loss, View logits, float* logsum, LossTotals* totals,
                 float* loss_sum, float* correct_sum, bool adds, const StepControl* control,
                 void* workspace, cudaStream_t stream);
// Computes dlogits = (probabilities - target) * gradient_scale * loss scale. It may overwrite the
// logits if both views are alike. With `clears_padding`, its padding up to PaddedChannels becomes
// zero if the stride has room for it. A null loss_scale means 1.
void LossGradient(const LossParameters& loss, View logits, const float* logsum, View dlogits,
                  bool clears_padding, const StepControl* control, const LossScale* loss_scale,
                  cudaStream_t stream);

}  // namespace trainyard::engine::cuda
