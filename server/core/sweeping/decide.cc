// Decides what all searches have in common: how a sweep is stopped and how it ends.
#include "server/core/sweeping/decide.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/sweeping/asha.h"
#include "server/core/sweeping/pbt.h"
#include "server/core/sweeping/steps.h"

namespace trainyard::core::sweeping {
namespace {

// Stops the next trial that has not ended, or ends the sweep if there is none.
Entry Close(const State& state, End end, std::string text) {
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    if (state.trials()[static_cast<size_t>(i)].has_ended()) continue;
    return {.kind = EntryKind::kTrialStopped, .trial = i, .text = std::move(text)};
  }
  return {.kind = EntryKind::kEnded, .end = end, .text = std::move(text)};
}

std::optional<Entry> PauseNext(const State& state) {
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    if (state.trials()[static_cast<size_t>(i)].status != TrialStatus::kActive) continue;
    return Entry{.kind = EntryKind::kPaused, .trial = i};
  }
  return std::nullopt;
}

// Returns the reason for which the sweep is to end before its trials have; empty if there is none.
std::string ReasonToEnd(const State& state) {
  if (state.reached_target() >= 0) {
    return absl::StrCat("trial ", state.reached_target(), " has reached the target of ",
                        *state.definition().target);
  }
  if (state.is_budget_used()) return "the trials have used the device time of the budget";
  const int32_t patience = state.definition().patience;
  if (patience > 0 && state.trials_since_best() >= patience && !state.is_reopened()) {
    return absl::StrCat(state.trials_since_best(), " trials in a row were no better than trial ",
                        state.best());
  }
  return "";
}

std::optional<Entry> DecideInOrder(const State& state) {
  if (!state.has_free_place()) return std::nullopt;
  std::optional<Entry> next = ResumeInterrupted(state);
  if (!next.has_value()) next = RestartFailed(state);
  if (!next.has_value()) next = StartNext(state);
  return next;
}

std::optional<Entry> DecideNext(const State& state) {
  switch (state.definition().search) {
    case Search::kAsha:
      return DecideAsha(state);
    case Search::kPbt:
      return DecidePbt(state);
    default:
      return DecideInOrder(state);
  }
}

}  // namespace

std::optional<Entry> Decide(const State& state) {
  if (state.has_ended()) return std::nullopt;
  if (state.is_cancelling()) {
    const std::string& who = state.cancelled_by();
    return Close(
        state, End::kStopped,
        who.empty() ? "the sweep was cancelled" : absl::StrCat("the sweep was cancelled by ", who));
  }
  if (state.is_stopping()) return PauseNext(state);
  const End end = state.best() < 0 ? End::kFailed : End::kSucceeded;
  if (std::string reason = ReasonToEnd(state); !reason.empty()) {
    return Close(state, end, std::move(reason));
  }
  if (std::optional<Entry> next = DecideNext(state); next.has_value()) return next;
  const bool have_all_ended = std::all_of(state.trials().begin(), state.trials().end(),
                                          [](const Trial& trial) { return trial.has_ended(); });
  if (!have_all_ended) return std::nullopt;
  return Close(state, end,
               end == End::kFailed ? "no trial has told a value" : "all trials have ended");
}

}  // namespace trainyard::core::sweeping
