// Checks each entry against the state before it takes it over, so that a record with entries that
// came twice or too late gives the same state as one without them.
#include "server/core/sweeping/state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trainyard::core::sweeping {
namespace {

constexpr double kWorst = -std::numeric_limits<double>::infinity();

}  // namespace

bool State::Apply(const Entry& entry) {
  if (has_ended() && entry.kind != EntryKind::kRetryRequested) return false;
  bool is_taken = false;
  switch (entry.kind) {
    case EntryKind::kBudgetUsed:
    case EntryKind::kStopRequested:
    case EntryKind::kCancelRequested:
    case EntryKind::kResumeRequested:
    case EntryKind::kRetryRequested:
    case EntryKind::kEnded:
      is_taken = ApplyToSweep(entry);
      break;
    case EntryKind::kStarted:
      is_taken = Start(entry);
      break;
    default:
      if (entry.trial < 0 || static_cast<size_t>(entry.trial) >= trials_.size()) return false;
      is_taken = ApplyToTrial(entry, trials_[static_cast<size_t>(entry.trial)]);
  }
  if (is_taken) SettleGeneration();
  return is_taken;
}

bool State::ApplyToSweep(const Entry& entry) {
  // Sets a flag, and tells if that changed it.
  const auto change = [](bool& flag, bool to) { return std::exchange(flag, to) != to; };
  switch (entry.kind) {
    case EntryKind::kBudgetUsed:
      return change(is_budget_used_, true);
    case EntryKind::kStopRequested:
      return !is_cancelling_ && change(is_stopping_, true);
    case EntryKind::kResumeRequested:
      return change(is_stopping_, false);
    case EntryKind::kCancelRequested:
      if (!change(is_cancelling_, true)) return false;
      is_stopping_ = false;
      cancelled_by_ = entry.text;
      return true;
    case EntryKind::kRetryRequested:
      return Retry();
    default:
      break;
  }
  const bool have_all_ended = std::all_of(trials_.begin(), trials_.end(),
                                          [](const Trial& trial) { return trial.has_ended(); });
  if (entry.end == End::kNone || !have_all_ended) return false;
  end_ = entry.end;
  end_text_ = entry.text;
  for (Trial& trial : trials_) trial.is_to_restart = false;
  return true;
}

bool State::ApplyToTrial(const Entry& entry, Trial& trial) {
  const bool is_active = trial.status == TrialStatus::kActive;
  switch (entry.kind) {
    case EntryKind::kReported:
      return TakeReport(entry, trial);
    case EntryKind::kHeld:
      if (trial.status != TrialStatus::kPaused || trial.held_step.has_value()) return false;
      trial.held_step = entry.step;
      return true;
    case EntryKind::kRestarted:
      if (!trial.is_to_restart || !may_start()) return false;
      Renew(trial, 0);
      trial.copied_from = -1;
      trial.reports.clear();
      trial.last.reset();
      trial.first_told = trial.last_told = 0;
      FindBest();
      return true;
    case EntryKind::kContinued:
      return Continue(entry, trial);
    case EntryKind::kExploited:
      return Exploit(entry, trial);
    case EntryKind::kPaused:
      if (!is_active) return false;
      SetStatus(trial, TrialStatus::kPaused);
      return true;
    default:
      break;
  }
  if (trial.has_ended()) return false;
  if (entry.kind == EntryKind::kFailed) {
    trial.failure = entry.text;
    ++trial.failures;
    SetStatus(trial, TrialStatus::kFailed);
  } else if (entry.kind == EntryKind::kTrialStopped) {
    SetStatus(trial, TrialStatus::kStopped);
  } else {
    trial.rung = last_rung();
    trial.failure = entry.text;
    SetStatus(trial, TrialStatus::kSucceeded);
    Tell(entry.trial, entry);
  }
  return true;
}

bool State::TakeReport(const Entry& entry, Trial& trial) {
  if (trial.has_ended() || entry.rung != trial.rung || entry.rung >= last_rung() ||
      trial.has_reported()) {
    return false;
  }
  trial.can_pause = entry.can_pause;
  Tell(entry.trial, entry);
  return true;
}

bool State::Start(const Entry& entry) {
  if (!may_start() || have_all_begun()) return false;
  if (entry.trial != static_cast<int32_t>(trials_.size()) || entry.rung != 0) return false;
  trials_.emplace_back();
  ++active_;
  return true;
}

bool State::Continue(const Entry& entry, Trial& trial) {
  if (trial.has_ended() || is_stopping_ || is_cancelling_) return false;
  const bool is_paused = trial.status == TrialStatus::kPaused;
  if (is_paused && !has_free_place()) return false;
  if (trial.has_reported()) {
    if (entry.rung != trial.rung + 1 || entry.rung > last_rung()) return false;
  } else if (!is_paused || entry.rung != trial.rung) {
    return false;
  }
  trial.rung = entry.rung;
  SetStatus(trial, TrialStatus::kActive);
  return true;
}

bool State::Exploit(const Entry& entry, Trial& trial) {
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& candidate) {
    return candidate.trial == entry.trial && candidate.donor == entry.donor &&
           candidate.step == entry.step;
  });
  if (copy == copies_.end() || !IsPossible(*copy) || !may_start()) return false;
  if (entry.rung != settled_ + 1) return false;
  Renew(trial, entry.rung);
  trial.copied_from = entry.donor;
  return true;
}

bool State::Retry() {
  if (is_budget_used_ || (is_cancelling_ && !has_ended())) return false;
  bool is_changed = false;
  for (Trial& trial : trials_) {
    if (trial.status != TrialStatus::kFailed || trial.is_to_restart) continue;
    trial.is_to_restart = true;
    is_changed = true;
  }
  if (is_changed && has_ended()) {
    end_ = End::kNone;
    end_text_.clear();
    is_cancelling_ = false;
    cancelled_by_.clear();
    is_reopened_ = true;
    reached_target_ = -1;
  }
  return is_changed;
}

bool State::IsPossible(const Copy& copy) const {
  const Trial& trial = trials_[static_cast<size_t>(copy.trial)];
  const Trial& donor = trials_[static_cast<size_t>(copy.donor)];
  const bool is_trial_waiting = trial.status == TrialStatus::kFailed ||
                                (trial.status == TrialStatus::kPaused && trial.rung == settled_);
  return is_trial_waiting && donor.status == TrialStatus::kPaused && donor.rung == settled_ &&
         donor.held_step == copy.step;
}

bool State::is_retrying() const {
  return std::any_of(trials_.begin(), trials_.end(),
                     [](const Trial& trial) { return trial.is_to_restart; });
}

bool State::have_all_begun() const {
  return is_reopened_ || static_cast<int32_t>(trials_.size()) >= definition_.trials;
}

bool State::IsBetter(double a, double b) const {
  return ScoreOf(definition_, a) > ScoreOf(definition_, b);
}

void State::Renew(Trial& trial, int32_t rung) {
  std::erase_if(copies_, [&](const Copy& copy) {
    return &trials_[static_cast<size_t>(copy.trial)] == &trial;
  });
  ++trial.generation;
  trial.rung = rung;
  trial.failure.clear();
  trial.can_pause = true;
  SetStatus(trial, TrialStatus::kActive);
}

void State::SetStatus(Trial& trial, TrialStatus status) {
  active_ +=
      (status == TrialStatus::kActive ? 1 : 0) - (trial.status == TrialStatus::kActive ? 1 : 0);
  trial.status = status;
  trial.held_step.reset();
  trial.is_to_restart = false;
}

void State::Tell(int32_t index, const Entry& entry) {
  Trial& trial = trials_[static_cast<size_t>(index)];
  const bool is_better = !trial.last.has_value() || IsBetter(entry.value, trial.last->value);
  trial.last = {.step = entry.step, .value = entry.value};
  trial.reports[trial.rung] = *trial.last;
  trial.last_told = ++told_;
  const bool is_first = trial.first_told == 0;
  if (is_first) trial.first_told = told_;
  const double score = ScoreOf(definition_, entry.value);
  if (definition_.target.has_value() && reached_target_ < 0 && !std::isnan(entry.value) &&
      score >= ScoreOf(definition_, *definition_.target)) {
    reached_target_ = index;
  }
  if (index == best_ && !is_better) return FindBest();
  if (score > kWorst && (index == best_ || best_ < 0 ||
                         IsBetter(entry.value, trials_[static_cast<size_t>(best_)].last->value))) {
    best_ = index;
    trials_since_best_ = 0;
  } else if (is_first && best_ >= 0) {
    ++trials_since_best_;
  }
}

void State::FindBest() {
  best_ = -1;
  trials_since_best_ = 0;
  double best_score = kWorst;
  int64_t told = 0;
  for (size_t i = 0; i < trials_.size(); ++i) {
    if (!trials_[i].last.has_value()) continue;
    const double score = ScoreOf(definition_, trials_[i].last->value);
    if (score < best_score || score == kWorst) continue;
    if (score == best_score && trials_[i].last_told > told) continue;
    best_ = static_cast<int32_t>(i);
    best_score = score;
    told = trials_[i].last_told;
  }
  if (best_ < 0) return;
  for (const Trial& trial : trials_) trials_since_best_ += trial.first_told > told ? 1 : 0;
}

void State::SettleGeneration() {
  if (definition_.search != Search::kPbt || active_ > 0 || !have_all_begun()) return;
  bool has_paused = false;
  for (const Trial& trial : trials_) {
    if (trial.has_ended()) continue;
    if (trial.rung != settled_ + 1 || !trial.has_reported() || !trial.held_step.has_value()) return;
    has_paused = true;
  }
  if (!has_paused) return;
  copies_ = PlanCopies(definition_, trials_, ++settled_);
}

}  // namespace trainyard::core::sweeping
