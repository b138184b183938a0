// Implements Li et al. 2018, arXiv:1810.05934, algorithm 2, with trials that wait at their rungs.
#include "server/core/sweeping/asha.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/core/sweeping/steps.h"

namespace trainyard::core::sweeping {
namespace {

constexpr char kOthersWereBetter[] = "others were better";

// Returns true if the trial has told a number at its rung, which is not the last, and waits there
// or still holds its place.
bool IsCandidate(const State& state, const Trial& trial) {
  if (trial.has_ended() || !trial.has_reported()) return false;
  return state.IsBetter(trial.reports.at(trial.rung).value, std::nan(""));
}

// The order of the trials at a rung: the smaller, the better.
using Rank = std::pair<double, int32_t>;  // the score with a minus, and the index

// Returns a rank for each trial that has reported at the rung or failed on its way there.
std::vector<Rank> RanksAt(const State& state, int32_t rung) {
  std::vector<Rank> ranks;
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    const Trial& trial = state.trials()[static_cast<size_t>(i)];
    if (trial.status == TrialStatus::kFailed && trial.rung == rung) {
      ranks.emplace_back(-ScoreOf(state.definition(), std::nan("")), i);
    } else if (const auto report = trial.reports.find(rung); report != trial.reports.end()) {
      ranks.emplace_back(-ScoreOf(state.definition(), report->second.value), i);
    }
  }
  return ranks;
}

// Returns the best 1/factor of the ranks, and at least `at_least`, in no order.
std::vector<Rank> TopOf(std::vector<Rank> ranks, int32_t factor, size_t at_least) {
  const size_t count =
      std::min(ranks.size(), std::max(ranks.size() / static_cast<size_t>(factor), at_least));
  if (count == 0) return {};
  std::nth_element(ranks.begin(), ranks.begin() + static_cast<int64_t>(count) - 1, ranks.end());
  ranks.resize(count);
  return ranks;
}

bool IsAmongTop(const State& state, int32_t index, size_t at_least) {
  const Trial& trial = state.trials()[static_cast<size_t>(index)];
  if (!IsCandidate(state, trial)) return false;
  const std::vector<Rank> top =
      TopOf(RanksAt(state, trial.rung), state.definition().factor, at_least);
  return std::any_of(top.begin(), top.end(),
                     [&](const Rank& rank) { return rank.second == index; });
}

// Promotes the best trial that waits at a rung and is among its best, at the highest rung that has
// one.
std::optional<Entry> Promote(const State& state) {
  for (int32_t rung = RungCount(state.definition()) - 2; rung >= 0; --rung) {
    std::vector<Rank> top = TopOf(RanksAt(state, rung), state.definition().factor, 0);
    std::sort(top.begin(), top.end());
    for (const auto& [minus_score, index] : top) {
      const Trial& trial = state.trials()[static_cast<size_t>(index)];
      if (trial.rung != rung || trial.status != TrialStatus::kPaused) continue;
      if (IsCandidate(state, trial)) return Continue(index, rung + 1);
    }
  }
  return std::nullopt;
}

// Returns the trial that trains on although it is not among the best 1/factor, because nothing else
// is left to do and no trial has been trained to the end: the best of the highest rung.
std::optional<int32_t> Finalist(const State& state) {
  if (!state.have_all_begun() || state.is_retrying() || Promote(state).has_value()) {
    return std::nullopt;
  }
  std::optional<int32_t> finalist;
  std::pair<int32_t, Rank> best;  // by the rung with a minus, then by rank
  for (int32_t i = 0; i < static_cast<int32_t>(state.trials().size()); ++i) {
    const Trial& trial = state.trials()[static_cast<size_t>(i)];
    if (trial.status == TrialStatus::kSucceeded || trial.is_interrupted()) return std::nullopt;
    if (trial.status == TrialStatus::kActive && !trial.has_reported()) return std::nullopt;
    if (!IsCandidate(state, trial)) continue;
    const double score = ScoreOf(state.definition(), trial.reports.at(trial.rung).value);
    const std::pair<int32_t, Rank> place = {-trial.rung, {-score, i}};
    if (finalist.has_value() && best < place) continue;
    best = place;
    finalist = i;
  }
  return finalist;
}

// Decides about the place of a trial that has reported and is still active.
Entry Judge(const State& state, int32_t index) {
  const Trial& trial = state.trials()[static_cast<size_t>(index)];
  if (IsAmongTop(state, index, 0)) return Continue(index, trial.rung + 1);
  if (state.active() == 1 && Finalist(state) == index) return Continue(index, trial.rung + 1);
  if (state.definition().pause.value_or(trial.can_pause)) {
    return {.kind = EntryKind::kPaused, .trial = index};
  }
  if (IsAmongTop(state, index, 1)) return Continue(index, trial.rung + 1);
  return {.kind = EntryKind::kTrialStopped, .trial = index, .text = kOthersWereBetter};
}

}  // namespace

std::optional<Entry> DecideAsha(const State& state) {
  const int32_t trials = static_cast<int32_t>(state.trials().size());
  for (int32_t i = 0; i < trials; ++i) {
    const Trial& trial = state.trials()[static_cast<size_t>(i)];
    if (trial.status == TrialStatus::kActive && trial.has_reported()) return Judge(state, i);
  }
  if (!state.has_free_place()) return std::nullopt;
  std::optional<Entry> next = ResumeInterrupted(state);
  if (!next.has_value()) next = RestartFailed(state);
  if (!next.has_value()) next = Promote(state);
  if (!next.has_value()) next = StartNext(state);
  if (next.has_value() || state.active() > 0) return next;
  if (const std::optional<int32_t> finalist = Finalist(state); finalist.has_value()) {
    return Continue(*finalist, state.trials()[static_cast<size_t>(*finalist)].rung + 1);
  }
  for (int32_t i = 0; i < trials; ++i) {
    if (state.trials()[static_cast<size_t>(i)].has_ended()) continue;
    return Entry{.kind = EntryKind::kTrialStopped, .trial = i, .text = kOthersWereBetter};
  }
  return std::nullopt;
}

}  // namespace trainyard::core::sweeping
