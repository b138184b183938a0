// Implements the update of the reference, parameter by parameter.
#include "worker/engine/backend/reference/updater.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "worker/engine/backend/reference/update.h"

namespace trainyard::engine::reference {

template <class T>
Updater<T>::Updater(const OptimizerSpec& spec, const StateTable& table, int64_t gradient_elements,
                    Backing backing)
    : spec_(spec),
      table_(table),
      gradient_elements_(gradient_elements),
      state_(spec, table, gradient_elements, backing) {}

template <class T>
void Updater<T>::Begin(double lr, const float* gradients) {
  is_finite_ = true;
  const int64_t t = state_.CountStep();
  // Gradients of which no norm is taken may still be summed at this time.
  const double norm = spec_.clip_norm > 0 ? Norm(gradients, gradient_elements_) : 0;
  rates_ = RatesOfUpdate(spec_, lr, t, norm);
}

template <class T>
void Updater<T>::Apply(int64_t begin, int64_t end, T* parameters, const float* gradients) {
  TY_CHECK(begin >= 0 && begin <= end && end <= gradient_elements_);
  TY_CHECK(IsElementwise(spec_) || (begin == 0 && end == gradient_elements_));
  is_finite_ = is_finite_ && std::all_of(gradients + begin, gradients + end,
                                         [](float g) { return std::isfinite(g); });
  for (const Segment& segment : table_.segments) {
    ApplyTo(segment, std::max(begin, segment.offset), std::min(end, segment.offset + segment.count),
            parameters, gradients);
  }
}

template <class T>
void Updater<T>::ApplyTo(const Segment& segment, int64_t begin, int64_t end, T* parameters,
                         const float* gradients) {
  if (begin >= end) {
    return;
  }
  const ParameterState<T> state = {.count = end - begin,
                                   .gradient = gradients + begin,
                                   .parameter = parameters + begin,
                                   .first = state_.slot(0, begin),
                                   .second = state_.slot(1, begin)};
  ApplyRule<T>(spec_, rates_, segment.is_bias_or_norm && !spec_.decay_bias_and_norm, state);
  if (spec_.ema_decay > 0) {
    FoldAverage(rates_.average_keep, parameters + begin, state_.averages() + begin, end - begin);
  }
}

template class Updater<float>;
template class Updater<double>;

}  // namespace trainyard::engine::reference
