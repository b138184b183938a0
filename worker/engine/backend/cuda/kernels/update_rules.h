// Defines the numbers of one update as the device computes them, and the rules for one element.
// optim/rules.def has the rules and their sources. The order of operations is that of the CPU
// backend.
#pragma once

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::cuda {

using Rule = OptimizerSpec::Rule;

// Numbers that depend on the count of updates and on the norm of all gradients.
struct Rates {
  float update;  // the number t of the update; 0 before the first
  float first_correction;
  float second_correction;
  float keep;  // of the moving average
  float rest;
  double gradient_scale;  // of the clipping, divided by the loss scale
};

constexpr bool KeepsCount(const OptimizerSpec& spec) {
  return KeepsMoments(spec.rule) || spec.ema_decay > 0;
}

__device__ inline float NextUpdate(float count) {
  return fminf(count + 1, static_cast<float>(kMaxCountedSteps));
}

// Computes what RatesOfUpdate computes. `norm` is that of the gradients in memory, still multiplied
// by the loss scale.
__device__ inline Rates ComputeRates(const OptimizerSpec& spec, float update, double norm,
                                     float loss_scale) {
  constexpr double kClipEps = 1e-6;
  Rates rates = {update, 1, 1, 0, 1, 1};
  if (spec.clip_norm > 0) {
    const double clipped = spec.clip_norm / (norm / loss_scale + kClipEps);
    rates.gradient_scale = clipped < 1 ? clipped : 1;
  }
  rates.gradient_scale /= loss_scale;
  const double t = update;
  if (KeepsMoments(spec.rule)) {
    rates.first_correction = static_cast<float>(1 / (1 - pow(spec.beta1, t)));
    rates.second_correction = static_cast<float>(1 / (1 - pow(spec.beta2, t)));
  }
  if (spec.ema_decay > 0 && update > 1) {
    const double early = (1 + t) / (10 + t);
    const double keep = early < spec.ema_decay ? early : spec.ema_decay;
    rates.keep = static_cast<float>(keep);
    rates.rest = static_cast<float>(1 - keep);
  }
  return rates;
}

// Computes LarsRatio or LambRatio. `other_norm` is that of the scaled gradient, or of the update.
__device__ inline double LayerRatio(const OptimizerSpec& spec, double parameter_norm,
                                    double other_norm) {
  if (!(parameter_norm > 0) || !(other_norm > 0)) {
    return 1;
  }
  if (spec.rule == Rule::kLamb) {
    return parameter_norm / other_norm;
  }
  return spec.trust_coefficient * parameter_norm /
         (other_norm + spec.weight_decay * parameter_norm + spec.eps);
}

// The numbers of one update for one parameter.
struct Numbers {
  float lr;  // multiplied by the ratio for layer-wise rules
  float momentum, weight_decay;
  float beta1, rest1;
  float beta2, rest2;
  float eps, first_correction, second_correction;
  float gradient_scale;
  float keep, rest;
  bool has_momentum, nesterov;
};

__device__ inline Numbers NumbersOf(const OptimizerSpec& spec, const Rates& rates, float lr,
                                    double ratio, bool is_excluded) {
  const auto to_float = [](double value) { return static_cast<float>(value); };
  return {.lr = to_float(lr * ratio),
          .momentum = to_float(spec.momentum),
          .weight_decay = is_excluded ? 0 : to_float(spec.weight_decay),
          .beta1 = to_float(spec.beta1),
          .rest1 = to_float(1 - spec.beta1),
          .beta2 = to_float(spec.beta2),
          .rest2 = to_float(1 - spec.beta2),
          .eps = to_float(spec.eps),
          .first_correction = rates.first_correction,
          .second_correction = rates.second_correction,
          .gradient_scale = to_float(rates.gradient_scale),
          .keep = rates.keep,
          .rest = rates.rest,
          .has_momentum = spec.momentum > 0,
          .nesterov = spec.nesterov};
}

// The passes over the parameters. LAMB needs a ratio between its two halves.
enum class Pass { kSgd, kAdamW, kAdam, kLars, kLambMoments, kLambApply };

constexpr bool HasMoments(Pass pass) {
  return pass == Pass::kAdamW || pass == Pass::kAdam || pass == Pass::kLambMoments ||
         pass == Pass::kLambApply;
}

// The parameter, the gradient and the slots of one element.
struct Element {
  float w, g, first, second;
};

// Returns Adam's corrected m / (sqrt(v) + eps).
__device__ inline float Direction(const Numbers& n, const Element& e) {
  return e.first * n.first_correction / (sqrtf(e.second * n.second_correction) + n.eps);
}

template <Pass pass>
__device__ inline void ApplyRule(const Numbers& n, Element& e) {
  if constexpr (pass == Pass::kSgd) {
    const float g = n.gradient_scale * e.g + n.weight_decay * e.w;
    if (!n.has_momentum) {
      e.w -= n.lr * g;
      return;
    }
    e.first = n.momentum * e.first + g;
    e.w -= n.lr * (n.nesterov ? g + n.momentum * e.first : e.first);
  } else if constexpr (pass == Pass::kLars) {
    const float step = n.lr * (n.gradient_scale * e.g + n.weight_decay * e.w);
    if (!n.has_momentum) {
      e.w -= step;
      return;
    }
    e.first = n.momentum * e.first + step;
    e.w -= n.nesterov ? n.momentum * e.first + step : e.first;
  } else if constexpr (pass == Pass::kLambApply) {
    e.w -= n.lr * (Direction(n, e) + n.weight_decay * e.w);
  } else {
    float g = n.gradient_scale * e.g;
    if constexpr (pass == Pass::kAdam) {
      g += n.weight_decay * e.w;
    }
    e.first = n.beta1 * e.first + n.rest1 * g;
    e.second = n.beta2 * e.second + n.rest2 * g * g;
    if constexpr (pass == Pass::kAdamW) {
      const float decayed = e.w - n.lr * n.weight_decay * e.w;
      e.w = decayed - n.lr * Direction(n, e);
    } else if constexpr (pass == Pass::kAdam) {
      e.w -= n.lr * Direction(n, e);
    }
  }
}

// Returns true if the value is NaN or infinite.
__device__ inline bool IsSpoiled(float value) {
  return !(fabsf(value) <= 3.402823466e38F);
}
// A product of two floats is exact in double.
__device__ inline double Square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

}  // namespace trainyard::engine::cuda
