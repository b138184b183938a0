// Implements Jaderberg et al. 2017, arXiv:1711.09846, with truncation selection in generations.
#include "server/core/sweeping/pbt.h"

#include "server/core/sweeping/steps.h"

namespace trainyard::core::sweeping {
namespace {

// Makes the next copy after the generation that was settled. Trials that train on make newer
// checkpoints, and the ones of the donors may then be removed; therefore all copies begin before
// any trial of the generation trains on.
std::optional<Entry> CopyNext(const State& state) {
  for (const Copy& copy : state.copies()) {
    if (!state.IsPossible(copy)) continue;
    return Entry{.kind = EntryKind::kExploited,
                 .trial = copy.trial,
                 .rung = state.settled() + 1,
                 .step = copy.step,
                 .donor = copy.donor};
  }
  return std::nullopt;
}

// Lets the first trial train on that waits at a rung that was settled.
std::optional<Entry> ContinueNext(const State& state) {
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    const Trial& trial = state.trials()[static_cast<size_t>(i)];
    if (trial.status == TrialStatus::kPaused && trial.rung <= state.settled()) {
      return Continue(i, trial.rung + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Entry> DecidePbt(const State& state) {
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    const Trial& trial = state.trials()[static_cast<size_t>(i)];
    if (trial.status == TrialStatus::kActive && trial.has_reported()) {
      return Entry{.kind = EntryKind::kPaused, .trial = i};
    }
  }
  if (!state.has_free_place()) return std::nullopt;
  std::optional<Entry> next = ResumeInterrupted(state);
  if (!next.has_value()) next = CopyNext(state);
  if (!next.has_value()) next = RestartFailed(state);
  if (!next.has_value()) next = ContinueNext(state);
  if (!next.has_value()) next = StartNext(state);
  return next;
}

}  // namespace trainyard::core::sweeping
