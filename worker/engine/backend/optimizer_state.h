// The state of an optimizer in the memory of the host: its slots and the moving averages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/backend/state_table.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {

// T is float, or double for a backend that computes in it.
template <class T>
class OptimizerState {
 public:
  OptimizerState(const OptimizerSpec& spec, const StateTable& table, int64_t gradient_elements,
                 Backing backing);

  // Counts one more step and returns its number; 0 where the rule counts none.
  int64_t CountStep();
  // Exchanges the parameters and their averages.
  void ExchangeAverages(T* parameters);

  // The slots, one after the other, and the averages, all laid out as the parameters are.
  T* slots() const { return slots_.template as<T>(); }
  T* averages() const { return averages_.template as<T>(); }
  // Slot `number` of the parameter that begins at `offset`; null where the rule has fewer.
  T* slot(size_t number, int64_t offset) const;
  // Each slot, then the averages.
  std::vector<absl::Span<T>> parameter_states() const;
  int64_t bytes() const { return slots_.bytes() + averages_.bytes(); }

 private:
  const int64_t gradient_elements_;
  const size_t slot_count_;
  const int64_t step_offset_;
  const bool has_averages_;
  AlignedBuffer slots_, averages_;
};

}  // namespace trainyard::engine
