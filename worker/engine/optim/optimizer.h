// What an optimizer is told, and the numbers of one update that all backends compute alike. The
// loops over parameters live with the backends.
//
// Biases and the parameters of norms are the parameters of one dimension.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trainyard::engine {

struct OptimizerSpec {
  // rules.def has the list, with the formulas and their sources.
  enum class Rule {
#define TY_RULE(kind, name, keeps, is_layerwise) k##kind,
#include "worker/engine/optim/rules.def"
#undef TY_RULE
  };
  Rule rule = Rule::kSgd;
  double momentum = 0;      // of rules that keep one: [0, 1)
  bool nesterov = false;    // needs momentum > 0
  double weight_decay = 0;  // >= 0
  double beta1 = 0.9;       // of rules that keep moments: [0, 1)
  double beta2 = 0.999;
  double eps = 1e-8;                 // of rules that keep moments: > 0; kLars: >= 0
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

// Returns true if the rule keeps the two moments of Adam; the others may keep a momentum.
constexpr bool KeepsMoments(OptimizerSpec::Rule rule) {
  enum class Keeps { Momentum, Moments };
  switch (rule) {
#define TY_RULE(kind, name, keeps, is_layerwise) \
  case OptimizerSpec::Rule::k##kind:             \
    return Keeps::keeps == Keeps::Moments;
#include "worker/engine/optim/rules.def"
#undef TY_RULE
  }
  return false;
}

// INVALID_ARGUMENT with the value where one is outside its range.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

// "sgd", "adamw": as in a spec.
const char* RuleName(OptimizerSpec::Rule rule);

// What the rule keeps for each parameter, under PyTorch's names: "momentum", "exp_avg".
std::vector<std::string> SlotNames(const OptimizerSpec& spec);
// Returns true if the number of the update matters: then it is part of the state.
bool CountsSteps(const OptimizerSpec& spec);
// Returns true if the rule takes norms of each parameter.
bool IsLayerwise(const OptimizerSpec& spec);
// Returns true if an element's update needs nothing of other elements: neither norms nor clipping.
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
// The rates of update t >= 1; `gradient_norm` over all parameters, read only with clip_norm.
UpdateRates RatesOfUpdate(const OptimizerSpec& spec, double lr, int64_t t, double gradient_norm);

// LARS: the factor of a parameter's learning rate; 1 where either norm is 0.
double LarsRatio(const OptimizerSpec& spec, double parameter_norm, double gradient_norm);
// LAMB: |w| / |u|; 1 where either is 0.
double LambRatio(double parameter_norm, double update_norm);

}  // namespace trainyard::engine
