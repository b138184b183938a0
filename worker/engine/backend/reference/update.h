// Declares the update rules of optim/optimizer.h as plain loops over one parameter.
#pragma once

#include <cstdint>

#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::reference {

// One parameter and what the rule keeps for it. Each points to `count` elements; slots that the
// rule does not have are null.
template <class T>
struct ParameterState {
  int64_t count = 0;
  const float* gradient = nullptr;
  T* parameter = nullptr;
  T* first = nullptr;   // momentum, exp_avg
  T* second = nullptr;  // exp_avg_sq
};

// Returns the Euclidean norm, summed in double.
template <class T>
double Norm(const T* values, int64_t count);

// `is_excluded` means without weight decay, and with a ratio of 1.
template <class T>
void ApplyRule(const OptimizerSpec& spec, const UpdateRates& rates, bool is_excluded,
               const ParameterState<T>& state);

// Computes average = keep * average + (1 - keep) * parameter.
template <class T>
void FoldAverage(double keep, const T* parameter, T* average, int64_t count);

}  // namespace trainyard::engine::reference
