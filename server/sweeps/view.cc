// Fills in the messages that show sweeps, and writes a sentence for each entry of a record.
#include "server/sweeps/view.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/codec/time.h"
#include "server/sweeps/plan.h"

namespace trainyard::sweeps {
namespace {

using core::sweeping::End;
using core::sweeping::Entry;
using core::sweeping::EntryKind;
using core::sweeping::State;
using core::sweeping::Trial;
using core::sweeping::TrialStatus;

v1::SweepState StateOf(const State& state) {
  switch (state.end()) {
    case End::kSucceeded:
      return v1::SWEEP_STATE_SUCCEEDED;
    case End::kStopped:
      return v1::SWEEP_STATE_STOPPED;
    case End::kFailed:
      return v1::SWEEP_STATE_FAILED;
    case End::kNone:
      break;
  }
  return state.is_stopping() ? v1::SWEEP_STATE_STOPPED : v1::SWEEP_STATE_RUNNING;
}

v1::TrialState StateOf(TrialStatus status) {
  switch (status) {
    case TrialStatus::kActive:
      return v1::TRIAL_STATE_ACTIVE;
    case TrialStatus::kPaused:
      return v1::TRIAL_STATE_PAUSED;
    case TrialStatus::kStopped:
      return v1::TRIAL_STATE_STOPPED;
    case TrialStatus::kSucceeded:
      return v1::TRIAL_STATE_SUCCEEDED;
    case TrialStatus::kFailed:
      return v1::TRIAL_STATE_FAILED;
  }
  return v1::TRIAL_STATE_UNSPECIFIED;
}

v1::SweepTrial ViewOfTrial(const Sweep& sweep, int32_t index, const runtime::Board& board) {
  const Trial& trial = sweep.state().trials()[static_cast<size_t>(index)];
  v1::SweepTrial shown;
  shown.set_index(index);
  shown.set_state(StateOf(trial.status));
  for (const auto& [path, value] : sweep.ValuesOf(index)) (*shown.mutable_values())[path] = value;
  for (const JobId job : sweep.JobsOf(index)) {
    if (!shown.job().empty()) shown.add_earlier_jobs(shown.job());
    shown.set_job(JobName(job));
    if (const auto view = board.FindJob(job); view != nullptr) {
      shown.set_progress_step(view->record.progress.step);
    }
  }
  shown.set_rung(trial.rung);
  for (const auto& [rung, report] : trial.reports) {
    v1::TrialReport& added = *shown.add_reports();
    added.set_rung(rung);
    added.set_step(report.step);
    added.set_value(report.value);
  }
  if (trial.last.has_value()) {
    shown.set_value(trial.last->value);
    shown.set_step(trial.last->step);
  }
  shown.set_copied_from(trial.copied_from);
  shown.set_failure(trial.failure);
  return shown;
}

std::string Value(double value) {
  return std::isnan(value) ? "no number" : absl::StrFormat("%.6g", value);
}

std::string Sentence(const Entry& entry) {
  const std::string trial = absl::StrCat("trial ", entry.trial);
  switch (entry.kind) {
    case EntryKind::kReported:
      return absl::StrCat(trial, " reports ", Value(entry.value), " at step ", entry.step,
                          ", its rung ", entry.rung);
    case EntryKind::kHeld:
      return absl::StrCat(trial, " is held at step ", entry.step);
    case EntryKind::kSucceeded:
      return absl::StrCat(trial, " was trained to its end: ", Value(entry.value), " at step ",
                          entry.step);
    case EntryKind::kFailed:
      return absl::StrCat(trial, " has failed: ", entry.text);
    case EntryKind::kBudgetUsed:
      return "the budget of device time is used";
    case EntryKind::kStopRequested:
      return absl::StrCat(entry.text, " stops the sweep");
    case EntryKind::kCancelRequested:
      return absl::StrCat(entry.text, " cancels the sweep");
    case EntryKind::kResumeRequested:
      return absl::StrCat(entry.text, " lets the sweep go on");
    case EntryKind::kRetryRequested:
      return absl::StrCat(entry.text, " lets the failed trials run again");
    case EntryKind::kStarted:
      return absl::StrCat(trial, " begins");
    case EntryKind::kRestarted:
      return absl::StrCat(trial, " begins again");
    case EntryKind::kContinued:
      return absl::StrCat(trial, " trains on to rung ", entry.rung);
    case EntryKind::kPaused:
      return absl::StrCat(trial, " is paused");
    case EntryKind::kTrialStopped:
      return absl::StrCat(trial, " is stopped: ", entry.text);
    case EntryKind::kExploited:
      return absl::StrCat(trial, " goes on as a copy of trial ", entry.donor, " at step ",
                          entry.step);
    case EntryKind::kEnded:
      return absl::StrCat("the sweep has ended: ", entry.text);
  }
  return "";
}

}  // namespace

v1::Sweep ViewOf(const Sweep& sweep, const runtime::Board& board, int64_t now_us,
                 bool with_trials) {
  const store::SweepRecord& record = sweep.record();
  const State& state = sweep.state();
  v1::Sweep shown;
  shown.set_name(SweepName(record.number));
  shown.set_title(record.spec.name());
  shown.set_user(record.user);
  shown.set_project(record.spec.project());
  *shown.mutable_create_time() = codec::ToTimestamp(record.create_us);
  if (sweep.end_us() > 0) *shown.mutable_end_time() = codec::ToTimestamp(sweep.end_us());
  shown.set_state(StateOf(state));
  shown.set_reason(state.has_ended() ? state.end_text() : sweep.trouble());
  if (with_trials) {
    *shown.mutable_spec() = record.spec;
  } else {
    *shown.mutable_spec()->mutable_sweep() = record.spec.sweep();
  }
  const auto begun = static_cast<int32_t>(state.trials().size());
  int32_t ended = 0;
  bool cannot_pause = false;
  int32_t never_compared = 0;
  for (const Trial& trial : state.trials()) {
    ended += trial.has_ended() ? 1 : 0;
    cannot_pause = cannot_pause || !trial.can_pause;
    const bool has_run_through = trial.status == TrialStatus::kSucceeded;
    never_compared += has_run_through && !trial.reports.contains(0) ? 1 : 0;
  }
  for (int32_t i = 0; i < begun; ++i) {
    if (with_trials || i == state.best()) *shown.add_trials() = ViewOfTrial(sweep, i, board);
  }
  shown.set_trials_total(state.definition().trials);
  shown.set_trials_begun(begun);
  shown.set_trials_ended(ended);
  shown.set_best_trial(state.best());
  if (state.best() >= 0) {
    shown.set_best_value(state.trials()[static_cast<size_t>(state.best())].last->value);
  }
  *shown.mutable_device_time() = codec::ToDuration(sweep.DeviceTime(board, now_us));
  shown.set_concurrent(state.definition().concurrent);
  const int32_t rungs = core::sweeping::RungCount(state.definition());
  for (int32_t rung = 0; rungs > 1 && rung < rungs; ++rung) {
    shown.add_rungs(core::sweeping::RungShare(state.definition(), rung));
  }
  const bool is_chosen = state.definition().pause.has_value();  // then nobody is surprised
  if (cannot_pause && !is_chosen && state.definition().search == core::sweeping::Search::kAsha) {
    shown.add_warnings(
        "trials of this program had no checkpoint at their rungs, so they are stopped there "
        "instead of paused");
  }
  if (rungs > 1 && never_compared > 0) {
    shown.add_warnings(
        absl::StrCat(never_compared, never_compared == 1 ? " trial was" : " trials were",
                     " trained to the end without a value at the first rung; tell the metric more "
                     "often, or give "
                     "sweep.max_steps if the trials do not tell how many steps they have"));
  }
  return shown;
}

void AddDecisions(const std::vector<Entry>& entries, int64_t after, v1::Sweep& shown) {
  int64_t sequence = 0;
  for (const Entry& entry : entries) {
    if (++sequence <= after) continue;
    v1::SweepDecision& added = *shown.add_decisions();
    added.set_sequence(sequence);
    *added.mutable_time() = codec::ToTimestamp(entry.time_us);
    added.set_text(Sentence(entry));
  }
}

}  // namespace trainyard::sweeps
