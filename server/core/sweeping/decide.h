// Decides what a sweep does next.
#pragma once

#include <optional>

#include "server/core/sweeping/state.h"

namespace trainyard::core::sweeping {

// Returns the next decision, or nothing if there is nothing to do until something happens. It is a
// function of the state alone. Whoever calls it writes the decision down, applies it and calls
// again.
//
// Grid and random search begin the trials in order, as many at a time as `concurrent` permits.
//
// ASHA (Li et al. 2018, arXiv:1810.05934): a place that is free goes to a trial that is among the
// best 1/factor of those that have reported at a rung and was not promoted yet, the highest rung
// first, and else to a new trial at the lowest rung. Where nothing is left to promote or to begin,
// the best trial of the highest rung that has any trains on, until one has been trained to the end.
// Trials that cannot wait go on past a rung only if they are then among the best of those that have
// reported there.
//
// PBT (Jaderberg et al. 2017, arXiv:1711.09846), by generations: when all trials that have not
// failed are held at a rung, each of the worst `quantile` is replaced by a copy of one of the best
// that has a checkpoint, and then all train on.
std::optional<Entry> Decide(const State& state);

}  // namespace trainyard::core::sweeping
