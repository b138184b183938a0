// softmax_cross_entropy (graph/ops/loss.cc). Probabilities are not kept: their gradient computes
// them again from the logits and `logsum`, the log of the sum of a vector's exponentials.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

// What a batch adds up to; as Evaluation, for the host to read.
struct LossTotals {
  double loss = 0;  // sum over the labels
  uint64_t correct = 0;
  uint64_t top5 = 0;
};

struct LossParameters {
  float label_smoothing = 0;
  int64_t labels = 0;  // vectors of logits
  int64_t classes = 0;
  bool counts_top5 = false;  // as backend/judge.h
};

// Of the workspace, which is zero before the first use, and left so that it can be used again.
int64_t LossWorkspace(int64_t labels);
// logits: [labels, classes]; logsum: f32 [labels]. Sums in a fixed order. Labels come from
// `control`. A logit that is not finite makes a loss that is not finite, -inf beside others apart.
// Where the sums of the step are wanted: adds (or writes, unless `adds`) weight * mean loss to
// *loss_sum and weight * correct / labels to *correct_sum; these and `totals` may be null.
void LossForward(const LossParameters& loss, View logits, float* logsum, LossTotals* totals,
                 float* loss_sum, float* correct_sum, bool adds, const StepControl* control,
                 void* workspace, cudaStream_t stream);
// dlogits = (probabilities - target) * gradient_scale * loss scale. May overwrite the logits where
// both views are alike. Its padding up to PaddedChannels becomes zero where `clears_padding` and
// the stride has room for it. loss_scale: null for 1.
void LossGradient(const LossParameters& loss, View logits, const float* logsum, View dlogits,
                  bool clears_padding, const StepControl* control, const LossScale* loss_scale,
                  cudaStream_t stream);

}  // namespace trainyard::engine::cuda
