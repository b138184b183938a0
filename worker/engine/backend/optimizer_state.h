// Holds the state of an optimizer in the memory of the host: its slots and the moving averages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/backend/state_table.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {

// The slots and the averages. T is float, or double for a backend that computes in doubles.
template <class T>
class OptimizerState {
 public:
  OptimizerState(const OptimizerSpec& spec, const StateTable& table, int64_t gradient_elements,
                 Backing backing);

  // Counts one more step and returns its number, or 0 if the rule counts none.
  int64_t CountStep();
  // Exchanges the parameters with their averages.
  void ExchangeAverages(T* parameters);

  // Return the slots, one after the other, and the averages. Each is laid out as the parameters
  // are.
  T* slots() const { return slots_.template as<T>(); }
  T* averages() const { return averages_.template as<T>(); }
  // Returns slot `number` of the parameter that begins at `offset`, or null if the rule has fewer.
  T* slot(size_t number, int64_t offset) const;
  // Returns each slot, then the averages.
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
