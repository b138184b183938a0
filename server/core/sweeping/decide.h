// Decides what a sweep does next.
#pragma once

#include <optional>

#include "server/core/sweeping/state.h"

namespace trainyard::core::sweeping {

// Returns the next decision, or nothing if there is nothing to do until something happens. It is a
// function of the state alone. Whoever calls it writes the decision down, applies it and calls
// again: State::Apply takes every decision over, and each brings the sweep closer to its end.
//
// A cancelled sweep ends before anything else is decided. A stopped sweep pauses its trials, and
// neither starts nor ends anything. Then a sweep ends that has reached its target, used its budget
// or lost its patience. Interrupted trials go on first, then failed ones run again, and then:
//
// Grid and random search begin the trials in order, as many at a time as `concurrent` permits.
//
// ASHA (Li et al. 2018, arXiv:1810.05934): a place that is free goes to a trial that is among the
// best 1/factor of those that have reported at a rung and was not promoted yet, the highest rung
// first, and else to a new trial at the lowest rung. Trials that failed on their way to a rung are
// among its worst. Where nothing is left to promote or to begin, the best trial of the highest rung
// that has any trains on, until one has been trained to the end. A trial that would be the next one
// to train on when it reports does so without a pause. Trials that cannot wait go on past a rung
// only if they are then among the best of those that have reported there, the first one always.
// Trials that told no number are never promoted.
//
// PBT (Jaderberg et al. 2017, arXiv:1711.09846), by generations: when all trials that have not
// ended are held at a rung, each of the worst `quantile` is replaced by a copy of one of the best
// that has a checkpoint, and then all train on. Failed trials are replaced too. All copies begin
// before any trial trains on, however few places there are: see PlanCopies. A trial that was
// restarted catches up while the others wait.
std::optional<Entry> Decide(const State& state);

}  // namespace trainyard::core::sweeping
