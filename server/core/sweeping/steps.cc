// Takes trials in order of their indices.
#include "server/core/sweeping/steps.h"

namespace trainyard::core::sweeping {

Entry Continue(int32_t trial, int32_t rung) {
  return {.kind = EntryKind::kContinued, .trial = trial, .rung = rung};
}

std::optional<Entry> ResumeInterrupted(const State& state) {
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    const Trial& trial = state.trials()[static_cast<size_t>(i)];
    if (trial.is_interrupted()) return Continue(i, trial.rung);
  }
  return std::nullopt;
}

std::optional<Entry> RestartFailed(const State& state) {
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    if (state.trials()[static_cast<size_t>(i)].is_to_restart) {
      return Entry{.kind = EntryKind::kRestarted, .trial = i};
    }
  }
  return std::nullopt;
}

std::optional<Entry> StartNext(const State& state) {
  if (state.have_all_begun()) return std::nullopt;
  return Entry{.kind = EntryKind::kStarted, .trial = static_cast<int32_t>(state.trials().size())};
}

}  // namespace trainyard::core::sweeping
