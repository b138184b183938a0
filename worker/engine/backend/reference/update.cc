// Computes the update rules as plain loops.
#include "worker/engine/backend/reference/update.h"

#include <cmath>
#include <vector>

namespace trainyard::engine::reference {
namespace {

template <class T>
void ApplySgd(const OptimizerSpec& spec, const UpdateRates& rates, T decay,
              const ParameterState<T>& s) {
  const T mu = static_cast<T>(spec.momentum);
  const T lr = static_cast<T>(rates.lr);
  const T scale = static_cast<T>(rates.gradient_scale);
  for (int64_t i = 0; i < s.count; ++i) {
    T& w = s.parameter[i];
    const T g = scale * static_cast<T>(s.gradient[i]) + decay * w;
    if (s.first == nullptr) {
      w -= lr * g;
      continue;
    }
    T& m = s.first[i];  // is zero before the first step, so that m = g then
    m = mu * m + g;
    w -= lr * (spec.nesterov ? g + mu * m : m);
  }
}

template <class T>
void ApplyLars(const OptimizerSpec& spec, const UpdateRates& rates, bool is_excluded, T decay,
               const ParameterState<T>& s) {
  const double ratio = is_excluded ? 1
                                   : LarsRatio(spec, Norm(s.parameter, s.count),
                                               rates.gradient_scale * Norm(s.gradient, s.count));
  const T mu = static_cast<T>(spec.momentum);
  const T rate = static_cast<T>(rates.lr * ratio);
  const T scale = static_cast<T>(rates.gradient_scale);
  for (int64_t i = 0; i < s.count; ++i) {
    T& w = s.parameter[i];
    const T step = rate * (scale * static_cast<T>(s.gradient[i]) + decay * w);
    if (s.first == nullptr) {
      w -= step;
      continue;
    }
    T& m = s.first[i];
    m = mu * m + step;
    w -= spec.nesterov ? mu * m + step : m;
  }
}

// Advances m and v of Adam, and returns the corrected m / (sqrt(v) + eps).
template <class T>
T AdamDirection(const OptimizerSpec& spec, const UpdateRates& rates, const ParameterState<T>& s,
                int64_t i, T g) {
  T& m = s.first[i];
  T& v = s.second[i];
  m = static_cast<T>(spec.beta1) * m + static_cast<T>(1 - spec.beta1) * g;
  v = static_cast<T>(spec.beta2) * v + static_cast<T>(1 - spec.beta2) * g * g;
  return m * static_cast<T>(rates.first_correction) /
         (std::sqrt(v * static_cast<T>(rates.second_correction)) + static_cast<T>(spec.eps));
}

template <class T>
T ScaledGradient(const UpdateRates& rates, const ParameterState<T>& s, int64_t i) {
  return static_cast<T>(rates.gradient_scale) * static_cast<T>(s.gradient[i]);
}

template <class T>
void ApplyAdamW(const OptimizerSpec& spec, const UpdateRates& rates, T decay,
                const ParameterState<T>& s) {
  const T lr = static_cast<T>(rates.lr);
  for (int64_t i = 0; i < s.count; ++i) {
    T& w = s.parameter[i];
    w -= lr * decay * w;
    w -= lr * AdamDirection(spec, rates, s, i, ScaledGradient(rates, s, i));
  }
}

template <class T>
void ApplyAdam(const OptimizerSpec& spec, const UpdateRates& rates, T decay,
               const ParameterState<T>& s) {
  const T lr = static_cast<T>(rates.lr);
  for (int64_t i = 0; i < s.count; ++i) {
    T& w = s.parameter[i];
    w -= lr * AdamDirection(spec, rates, s, i, ScaledGradient(rates, s, i) + decay * w);
  }
}

template <class T>
void ApplyLamb(const OptimizerSpec& spec, const UpdateRates& rates, bool is_excluded, T decay,
               const ParameterState<T>& s) {
  std::vector<T> update(static_cast<size_t>(s.count));
  for (int64_t i = 0; i < s.count; ++i) {
    update[static_cast<size_t>(i)] =
        AdamDirection(spec, rates, s, i, ScaledGradient(rates, s, i)) + decay * s.parameter[i];
  }
  const double ratio =
      is_excluded ? 1 : LambRatio(Norm(s.parameter, s.count), Norm(update.data(), s.count));
  const T rate = static_cast<T>(rates.lr * ratio);
  for (int64_t i = 0; i < s.count; ++i) {
    s.parameter[i] -= rate * update[static_cast<size_t>(i)];
  }
}

}  // namespace

template <class T>
double Norm(const T* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return std::sqrt(sum);
}

template <class T>
void ApplyRule(const OptimizerSpec& spec, const UpdateRates& rates, bool is_excluded,
               const ParameterState<T>& state) {
  const T decay = static_cast<T>(is_excluded ? 0 : spec.weight_decay);
  switch (spec.rule) {
    case OptimizerSpec::Rule::kSgd:
      return ApplySgd(spec, rates, decay, state);
    case OptimizerSpec::Rule::kAdamW:
      return ApplyAdamW(spec, rates, decay, state);
    case OptimizerSpec::Rule::kAdam:
      return ApplyAdam(spec, rates, decay, state);
    case OptimizerSpec::Rule::kLars:
      return ApplyLars(spec, rates, is_excluded, decay, state);
    case OptimizerSpec::Rule::kLamb:
      return ApplyLamb(spec, rates, is_excluded, decay, state);
  }
}

template <class T>
void FoldAverage(double keep, const T* parameter, T* average, int64_t count) {
  const T share = static_cast<T>(keep);
  const T rest = static_cast<T>(1 - keep);
  for (int64_t i = 0; i < count; ++i) {
    average[i] = share * average[i] + rest * parameter[i];
  }
}

template double Norm<float>(const float*, int64_t);
template double Norm<double>(const double*, int64_t);
template void ApplyRule<float>(const OptimizerSpec&, const UpdateRates&, bool,
                               const ParameterState<float>&);
template void ApplyRule<double>(const OptimizerSpec&, const UpdateRates&, bool,
                                const ParameterState<double>&);
template void FoldAverage<float>(double, const float*, float*, int64_t);
template void FoldAverage<double>(double, const double*, double*, int64_t);

}  // namespace trainyard::engine::reference
