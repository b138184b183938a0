// Implements the optimizer of one executable of the reference: its state, and the update of all
// parameters or of a range of them.
#pragma once

#include <cstdint>

#include "worker/engine/backend/optimizer_state.h"
#include "worker/engine/backend/state_table.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::reference {

template <class T>
class Updater {
 public:
  // Borrows the table.
  Updater(const OptimizerSpec& spec, const StateTable& table, int64_t gradient_elements,
          Backing backing);

  // Make one update: Begin, then Apply to disjoint ranges. `parameters` and `gradients` are flat,
  // as the table says. Rules that take norms need all gradients at Begin, and all of them in one
  // Apply.
  void Begin(double lr, const float* gradients);
  void Apply(int64_t begin, int64_t end, T* parameters, const float* gradients);
  // Returns true if all gradients that were applied since Begin were finite.
  bool is_finite() const { return is_finite_; }

  bool updates_ranges() const { return IsElementwise(spec_); }
  OptimizerState<T>& state() { return state_; }
  const OptimizerState<T>& state() const { return state_; }

 private:
  // Applies the update to the part of the parameter that lies in [begin, end).
  void ApplyTo(const Segment& segment, int64_t begin, int64_t end, T* parameters,
               const float* gradients);

  const OptimizerSpec spec_;
  const StateTable& table_;
  const int64_t gradient_elements_;
  OptimizerState<T> state_;
  // The rates of the update that has begun.
  UpdateRates rates_;
  bool is_finite_ = true;
};

}  // namespace trainyard::engine::reference
