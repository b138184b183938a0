// Declares softmax_cross_entropy (graph/ops/loss.cc) together with its gradient.
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

// The places of the sums over a batch; null for what is not wanted.
struct LossSums {
  LossTotals* totals = nullptr;
  // The sums of the step: weight * mean loss and weight * correct / labels.
  float* loss = nullptr;
  float* correct = nullptr;
  bool adds = false;  // true if these two are added to the present values
};

// Returns the bytes of the workspace, which must be zero before its first use. Each use leaves it
// ready for the next.
int64_t LossWorkspace(int64_t labels);
// Computes the loss of logits [labels, classes]; labels come from `control`. Sums are taken in a
// fixed order. A logit that is not finite makes the loss not finite, except for -inf beside other
// logits. Unless dlogits is null, it becomes (probabilities - target) * gradient_scale * loss
// scale. It may overwrite the logits if both views are alike. With `clears_padding`, its padding up
// to PaddedChannels becomes zero if the stride has room for it. A null loss_scale means 1.
void Loss(const LossParameters& loss, View logits, View dlogits, bool clears_padding,
          const LossSums& into, const StepControl* control, const LossScale* loss_scale,
          void* workspace, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
