// Computes the numbers of an update that all backends share.
#include "worker/engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace trainyard::engine {
namespace {

using Rule = OptimizerSpec::Rule;

absl::Status Refuse(const OptimizerSpec& spec, const char* field, double value,
                    const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(RuleName(spec.rule), ": ", field, " ", value, "; expected ", expected));
}

bool IsFraction(double value) {
  return value >= 0 && value < 1;
}

}  // namespace

absl::Status ValidateOptimizer(const OptimizerSpec& spec) {
  if (!KeepsMoments(spec.rule)) {
    if (!IsFraction(spec.momentum)) {
      return Refuse(spec, "momentum", spec.momentum, "a value in [0, 1)");
    }
    if (spec.nesterov && spec.momentum == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          RuleName(spec.rule), ": nesterov with momentum 0; expected momentum above 0"));
    }
  } else {
    for (const double beta : {spec.beta1, spec.beta2}) {
      if (!IsFraction(beta)) {
        return Refuse(spec, "beta", beta, "a value in [0, 1)");
      }
    }
    if (!(spec.eps > 0)) {
      return Refuse(spec, "eps", spec.eps, "a value above 0");
    }
  }
  if (spec.rule == Rule::kLars && !(spec.trust_coefficient > 0)) {
    return Refuse(spec, "trust_coefficient", spec.trust_coefficient, "a value above 0");
  }
  if (spec.rule == Rule::kLars && !(spec.eps >= 0)) {
    return Refuse(spec, "eps", spec.eps, "at least 0");
  }
  if (!(spec.weight_decay >= 0)) {
    return Refuse(spec, "weight_decay", spec.weight_decay, "at least 0");
  }
  if (!(spec.clip_norm >= 0)) {
    return Refuse(spec, "clip_norm", spec.clip_norm, "at least 0");
  }
  if (!IsFraction(spec.ema_decay)) {
    return Refuse(spec, "ema_decay", spec.ema_decay, "a value in [0, 1)");
  }
  return absl::OkStatus();
}

const char* RuleName(Rule rule) {
  switch (rule) {
#define TY_RULE(kind, name, keeps, is_layerwise) \
  case Rule::k##kind:                            \
    return #name;
#include "worker/engine/optim/rules.def"
#undef TY_RULE
  }
  return "";
}

std::vector<std::string> SlotNames(const OptimizerSpec& spec) {
  if (KeepsMoments(spec.rule)) {
    return {"exp_avg", "exp_avg_sq"};
  }
  return spec.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>();
}

bool CountsSteps(const OptimizerSpec& spec) {
  return KeepsMoments(spec.rule) || spec.ema_decay > 0;
}

bool IsLayerwise(const OptimizerSpec& spec) {
  constexpr bool kIsLayerwise[] = {
#define TY_RULE(kind, name, keeps, is_layerwise) is_layerwise,
#include "worker/engine/optim/rules.def"
#undef TY_RULE
  };
  return kIsLayerwise[static_cast<size_t>(spec.rule)];
}

bool IsElementwise(const OptimizerSpec& spec) {
  return !IsLayerwise(spec) && spec.clip_norm <= 0;
}

UpdateRates RatesOfUpdate(const OptimizerSpec& spec, double lr, int64_t t, double gradient_norm) {
  // As in torch.nn.utils.clip_grad_norm_, this keeps a norm of 0 from dividing by 0.
  constexpr double kClipEps = 1e-6;
  UpdateRates rates;
  rates.lr = lr;
  if (spec.clip_norm > 0) {
    rates.gradient_scale = std::min(1.0, spec.clip_norm / (gradient_norm + kClipEps));
  }
  const auto updates = static_cast<double>(t);
  if (KeepsMoments(spec.rule)) {
    rates.first_correction = 1 / (1 - std::pow(spec.beta1, updates));
    rates.second_correction = 1 / (1 - std::pow(spec.beta2, updates));
  }
  if (spec.ema_decay > 0 && t > 1) {
    rates.average_keep = std::min(spec.ema_decay, (1 + updates) / (10 + updates));
  }
  return rates;
}

double LarsRatio(const OptimizerSpec& spec, double parameter_norm, double gradient_norm) {
  if (!(parameter_norm > 0) || !(gradient_norm > 0)) {
    return 1;
  }
  return spec.trust_coefficient * parameter_norm /
         (gradient_norm + spec.weight_decay * parameter_norm + spec.eps);
}

double LambRatio(double parameter_norm, double update_norm) {
  return parameter_norm > 0 && update_norm > 0 ? parameter_norm / update_norm : 1;
}

}  // namespace trainyard::engine
