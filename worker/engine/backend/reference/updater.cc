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
      slot_count_(SlotNames(spec).size()),
      slots_(table.slot_elements * int64_t{sizeof(T)}, backing),
      averages_(table.average_elements * int64_t{sizeof(T)}, backing) {}

template <class T>
int64_t Updater<T>::CountStep() {
  if (table_.step_offset < 0) {
    return 0;
  }
  T& count = slots()[table_.step_offset];
  const int64_t t = std::min(static_cast<int64_t>(count) + 1, kMaxCountedSteps);
  count = static_cast<T>(t);
  return t;
}

template <class T>
void Updater<T>::Begin(double lr, const float* gradients) {
  is_finite_ = true;
  const int64_t t = CountStep();
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
  ParameterState<T> state = {
      .count = end - begin, .gradient = gradients + begin, .parameter = parameters + begin};
  if (slot_count_ > 0) {
    state.first = slots() + begin;
  }
  if (slot_count_ > 1) {
    state.second = state.first + gradient_elements_;
  }
  ApplyRule<T>(spec_, rates_, segment.is_bias_or_norm && !spec_.decay_bias_and_norm, state);
  if (spec_.ema_decay > 0) {
    FoldAverage(rates_.average_keep, parameters + begin, averages() + begin, end - begin);
  }
}

template <class T>
void Updater<T>::ExchangeAverages(T* parameters) {
  std::swap_ranges(parameters, parameters + gradient_elements_, averages());
}

template <class T>
std::vector<absl::Span<T>> Updater<T>::parameter_states() const {
  const auto count = static_cast<size_t>(gradient_elements_);
  std::vector<absl::Span<T>> states;
  for (size_t i = 0; i < slot_count_; ++i) {
    states.emplace_back(slots() + i * count, count);
  }
  if (spec_.ema_decay > 0) {
    states.emplace_back(averages(), count);
  }
  return states;
}

template class Updater<float>;
template class Updater<double>;

}  // namespace trainyard::engine::reference
