// Implements the state of an optimizer, whose parts lie in flat memory.
#include "worker/engine/backend/optimizer_state.h"

#include <algorithm>

namespace trainyard::engine {

template <class T>
OptimizerState<T>::OptimizerState(const OptimizerSpec& spec, const StateTable& table,
                                  int64_t gradient_elements, Backing backing)
    : gradient_elements_(gradient_elements),
      slot_count_(SlotNames(spec).size()),
      step_offset_(table.step_offset),
      has_averages_(spec.ema_decay > 0),
      slots_(table.slot_elements * int64_t{sizeof(T)}, backing),
      averages_(table.average_elements * int64_t{sizeof(T)}, backing) {}

template <class T>
int64_t OptimizerState<T>::CountStep() {
  if (step_offset_ < 0) return 0;
  T& count = slots()[step_offset_];
  const int64_t t = std::min(static_cast<int64_t>(count) + 1, kMaxCountedSteps);
  count = static_cast<T>(t);
  return t;
}

template <class T>
void OptimizerState<T>::ExchangeAverages(T* parameters) {
  std::swap_ranges(parameters, parameters + gradient_elements_, averages());
}

template <class T>
T* OptimizerState<T>::slot(size_t number, int64_t offset) const {
  if (number >= slot_count_) return nullptr;
  return slots() + static_cast<int64_t>(number) * gradient_elements_ + offset;
}

template <class T>
std::vector<absl::Span<T>> OptimizerState<T>::parameter_states() const {
  const auto count = static_cast<size_t>(gradient_elements_);
  std::vector<absl::Span<T>> states;
  for (size_t i = 0; i < slot_count_; ++i) states.emplace_back(slot(i, 0), count);
  if (has_averages_) states.emplace_back(averages(), count);
  return states;
}

template class OptimizerState<float>;
template class OptimizerState<double>;

}  // namespace trainyard::engine
