// What an optimizer is told; the update rules live with the backends.
#pragma once

#include "absl/status/status.h"

namespace trainyard::engine {

// Stochastic gradient descent, as PyTorch's torch.optim.SGD without dampening:
//   g = gradient + weight_decay * w;  m = g at the first step, then momentum * m + g
//   w -= lr * (g + momentum * m) with Nesterov, otherwise w -= lr * m
struct OptimizerSpec {
  double momentum = 0;      // [0, 1)
  bool nesterov = false;    // needs momentum > 0
  double weight_decay = 0;  // >= 0
};

// INVALID_ARGUMENT with the value where one is outside its range.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

}  // namespace trainyard::engine
