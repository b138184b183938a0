// Describes an optimizer, and computes the numbers of one update that all backends share. The loops
// over parameters belong to the backends.
//
// Biases and the parameters of norms are the parameters of one dimension.
#pragma once

#include <cstddef>
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
  // If false, biases and parameters of norms have no weight decay, and with kLars and kLamb a ratio
  // of 1.
  bool decay_bias_and_norm = true;
  // If the norm of the gradient over all parameters is larger than this, the gradient is scaled
  // down to it (Pascanu et al. 2013, algorithm 1). 0 means never.
  double clip_norm = 0;
  // The decay d of a moving average of the parameters, average = d * average + (1 - d) * w after
  // each update, with d = min(ema_decay, (1 + t) / (10 + t)), so that the start does not dominate a
  // short run. The first update sets the average to w. 0 means none. [0, 1)
  double ema_decay = 0;
};

// Returns true if the rule keeps the two moments of Adam; the others may keep a momentum.
constexpr bool KeepsMoments(OptimizerSpec::Rule rule) {
  enum class Keeps { Momentum, Moments };
  constexpr Keeps kKept[] = {
#define TY_RULE(kind, name, keeps, is_layerwise) Keeps::keeps,
#include "worker/engine/optim/rules.def"
#undef TY_RULE
  };
  return kKept[static_cast<size_t>(rule)] == Keeps::Moments;
}

// Returns INVALID_ARGUMENT with the value if one is outside its range.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

// Returns the name of a rule in specs: "sgd", "adamw".
const char* RuleName(OptimizerSpec::Rule rule);

// Returns what the rule keeps for each parameter, under PyTorch's names: "momentum", "exp_avg".
std::vector<std::string> SlotNames(const OptimizerSpec& spec);
// Returns true if the number of the update matters. It is then part of the state.
bool CountsSteps(const OptimizerSpec& spec);
// Returns true if the rule takes norms of each parameter.
bool IsLayerwise(const OptimizerSpec& spec);
// Returns true if an element's update does not depend on other elements: neither norms nor
// clipping.
bool IsElementwise(const OptimizerSpec& spec);

// The step count is kept as a float, which is exact up to this number, and stays there: the
// corrections have long been 1 by then.
inline constexpr int64_t kMaxCountedSteps = int64_t{1} << 24;

// The numbers that change from update to update. Backends read them from memory, so that no
// compiled step depends on it.
struct UpdateRates {
  double lr = 0;
  double gradient_scale = 1;     // of the clipping
  double first_correction = 1;   // 1 / (1 - beta1^t)
  double second_correction = 1;  // 1 / (1 - beta2^t)
  double average_keep = 0;       // d of the moving average
};
// Returns the rates of update t >= 1. `gradient_norm` is over all parameters, and read only with
// clip_norm.
UpdateRates RatesOfUpdate(const OptimizerSpec& spec, double lr, int64_t t, double gradient_norm);

// LARS: returns the factor of a parameter's learning rate, which is 1 if either norm is 0.
double LarsRatio(const OptimizerSpec& spec, double parameter_norm, double gradient_norm);
// LAMB: returns |w| / |u|, or 1 if either is 0.
double LambRatio(double parameter_norm, double update_norm);

}  // namespace trainyard::engine
