// What an optimizer is told, and the numbers of one update that all backends compute alike. The
// loops over parameters live with the backends.
//
// In every rule g is the reduced gradient of the global batch, scaled by the clipping, and t the
// number of the update, from 1. Biases and the parameters of norms are those of one dimension.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trainyard::engine {

struct OptimizerSpec {
  enum class Rule {
    // Stochastic gradient descent, as PyTorch's torch.optim.SGD without dampening:
    //   g += weight_decay * w;  m = g at the first step, then momentum * m + g
    //   w -= lr * (g + momentum * m) with Nesterov, otherwise w -= lr * m
    kSgd,
    // Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), as PyTorch's:
    //   w -= lr * weight_decay * w
    //   m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
    //   w -= lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
    kAdamW,
    // Layer-wise adaptive rates (You et al. 2017, algorithm 1), as MLPerf's reference:
    //   ratio = trust_coefficient * |w| / (|g| + weight_decay * |w| + eps), per parameter
    //   m = momentum * m + lr * ratio * (g + weight_decay * w)
    //   w -= m, or w -= momentum * m + lr * ratio * (g + weight_decay * w) with Nesterov
    kLars,
    // Layer-wise adaptive Adam (You et al. 2020, algorithm 2), m and v as in AdamW:
    //   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
    //   w -= lr * (|w| / |u|) * u, per parameter
    kLamb,
  };
  Rule rule = Rule::kSgd;
  double momentum = 0;      // kSgd, kLars: [0, 1)
  bool nesterov = false;    // needs momentum > 0
  double weight_decay = 0;  // >= 0
  double beta1 = 0.9;       // kAdamW, kLamb: [0, 1)
  double beta2 = 0.999;
  double eps = 1e-8;                 // kAdamW, kLamb: > 0; kLars: >= 0
  double trust_coefficient = 0.001;  // kLars: > 0
  // False: biases and parameters of norms have no weight decay, and with kLars and kLamb a ratio
  // of 1.
  bool decay_bias_and_norm = true;
  // The gradient is scaled down to this norm where that over all parameters is larger (Pascanu et
  // al. 2013, algorithm 1); 0 for never.
  double clip_norm = 0;
  // A moving average of the parameters, average = d * average + (1 - d) * w after each update, with
  // d = min(ema_decay, (1 + t) / (10 + t)), so that a short run is not all start; the first update
  // sets it to w. 0 for none. [0, 1)
  double ema_decay = 0;
};

// INVALID_ARGUMENT with the value where one is outside its range.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

// "sgd", "adamw", "lars", "lamb": as in a spec.
const char* RuleName(OptimizerSpec::Rule rule);

// What the rule keeps for each parameter, under PyTorch's names: "momentum", "exp_avg".
std::vector<std::string> SlotNames(const OptimizerSpec& spec);
// Whether the number of the update matters: then it is part of the state.
bool CountsSteps(const OptimizerSpec& spec);
// Whether the rule takes norms of each parameter.
bool IsLayerwise(const OptimizerSpec& spec);
// Whether an element's update needs nothing of other elements: neither norms nor clipping.
bool IsElementwise(const OptimizerSpec& spec);

// The step count is kept as a float, which is exact up to here, and stays here: the corrections
// have long been 1 by then.
inline constexpr int64_t kMaxCountedSteps = int64_t{1} << 24;

// What changes from update to update. Backends read it from memory: no compiled step depends on it.
struct UpdateRates {
  double lr = 0;
  double gradient_scale = 1;     // of the clipping
  double first_correction = 1;   // 1 / (1 - beta1^t)
  double second_correction = 1;  // 1 / (1 - beta2^t)
  double average_keep = 0;       // d of the moving average
};
// Of update t >= 1; `gradient_norm` over all parameters, read only with clip_norm.
UpdateRates RatesOfUpdate(const OptimizerSpec& spec, double lr, int64_t t, double gradient_norm);

// LARS: the factor of a parameter's learning rate; 1 where either norm is 0.
double LarsRatio(const OptimizerSpec& spec, double parameter_norm, double gradient_norm);
// LAMB: |w| / |u|; 1 where either is 0.
double LambRatio(double parameter_norm, double update_norm);

}  // namespace trainyard::engine
