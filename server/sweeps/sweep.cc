// Compares what was decided about trials with what has become of their jobs.
#include "server/sweeps/sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/codec/time.h"
#include "server/core/sweeping/decide.h"
#include "server/sweeps/plan.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::sweeps {
namespace {

namespace fsm = core::job_fsm;
using core::sweeping::Entry;
using core::sweeping::EntryKind;
using core::sweeping::Trial;
using core::sweeping::TrialStatus;

// Returns the number of steps of the whole training of a job; 0 while it is not known.
int64_t TotalSteps(const v1::SweepSpec& sweep, const core::JobRecord& job) {
  if (sweep.max_steps() > 0) return sweep.max_steps();
  v1::Progress progress;
  if (job.progress.report == nullptr || !progress.ParseFromString(*job.progress.report)) return 0;
  return progress.total_steps();
}

std::vector<double> RungShares(const core::sweeping::Definition& definition) {
  std::vector<double> shares;
  for (int32_t rung = 0; rung < core::sweeping::RungCount(definition); ++rung) {
    shares.push_back(core::sweeping::RungShare(definition, rung));
  }
  return shares;
}

bool BeginsJob(EntryKind kind) {
  return kind == EntryKind::kStarted || kind == EntryKind::kRestarted ||
         kind == EntryKind::kExploited;
}

// Returns why the trial cannot go on with this job, or an empty text.
std::string FailureOf(const core::JobRecord& job) {
  const std::string name = JobName(job.id);
  if (const auto* failed = std::get_if<fsm::Failed>(&job.state)) {
    return absl::StrCat(name, " has failed: ", failed->failure.message);
  }
  if (std::holds_alternative<fsm::Cancelled>(job.state)) {
    return absl::StrCat(name, " was cancelled");
  }
  const auto* suspended = std::get_if<fsm::Suspended>(&job.state);
  if (suspended != nullptr && suspended->failure.has_value()) {
    return absl::StrCat(name, " is held: ", suspended->failure->message);
  }
  return "";
}

}  // namespace

Sweep::Sweep(store::SweepRecord record)
    : record_(std::move(record)), space_(SpaceOf(record_.spec.sweep())) {
  state_.emplace(DefinitionOf(record_.spec.sweep()));
}

absl::StatusOr<Sweep> Sweep::Load(store::SweepRecord record, const store::SweepHistory& history) {
  Sweep sweep(std::move(record));
  TY_RETURN_IF_ERROR(sweep.TakeOver(history.entries));
  for (const store::TrialJob& job : history.jobs) sweep.NoteJob(job);
  return sweep;
}

JobId Sweep::NewestJob(int32_t trial) const {
  const auto index = static_cast<size_t>(trial);
  const auto& jobs = trials_[index].jobs;
  const auto found = jobs.find(state_->trials()[index].generation);
  return found == jobs.end() ? JobId{} : found->second;
}

std::vector<JobId> Sweep::JobsOf(int32_t trial) const {
  std::vector<JobId> jobs;
  for (const auto& [generation, job] : trials_[static_cast<size_t>(trial)].jobs) {
    jobs.push_back(job);
  }
  return jobs;
}

int64_t Sweep::DeviceTime(const runtime::Board& board, int64_t now_us) const {
  int64_t sum = 0;
  for (const TrialWork& work : trials_) {
    for (const auto& [generation, job] : work.jobs) {
      const auto view = board.FindJob(job);
      if (view == nullptr) continue;
      sum += view->record.device_time_us;
      // The record counts the time of an attempt once that has ended.
      if (view->attempt != nullptr && view->attempt->end_us == 0) {
        sum += std::max<int64_t>(now_us - view->attempt->create_us, 0) *
               static_cast<int64_t>(view->attempt->ranks.size());
      }
    }
  }
  return sum;
}

void Sweep::ObserveTrial(int32_t index, const runtime::Board& board, store::MetricsStore& metrics,
                         std::vector<Entry>& happened) {
  const Trial& trial = state_->trials()[static_cast<size_t>(index)];
  TrialWork& work = trials_[static_cast<size_t>(index)];
  Entry entry;
  entry.trial = index;
  entry.rung = trial.rung;
  const auto fail = [&](std::string why) {
    entry.kind = EntryKind::kFailed;
    entry.text = std::move(why);
    happened.push_back(entry);
  };
  if (!work.refusal.empty()) return fail(work.refusal);
  const JobId job = NewestJob(index);
  if (job == JobId{}) return;
  const auto view = board.FindJob(job);
  if (view == nullptr) return fail(absl::StrCat(JobName(job), " was deleted"));
  if (const std::string failure = FailureOf(view->record); !failure.empty()) return fail(failure);
  if (!work.watch.has_value() || work.watch->job() != job) {
    work.watch.emplace(job, RungShares(state_->definition()));
  }
  const std::string& objective = ObjectiveOf(record_.spec.sweep());
  const bool has_succeeded = std::holds_alternative<fsm::Succeeded>(view->record.state);
  const absl::Status read =
      has_succeeded
          ? work.watch->ReadLast(metrics, objective)
          : work.watch->Read(metrics, objective, TotalSteps(record_.spec.sweep(), view->record));
  if (!read.ok()) {
    trouble_ = absl::StrCat("cannot read the metrics of ", JobName(job), ": ", read.message());
    return;
  }
  if (has_succeeded) {
    entry.kind = EntryKind::kSucceeded;
    entry.value = std::numeric_limits<double>::quiet_NaN();
    if (const auto& last = work.watch->last(); last.has_value()) {
      entry.value = last->value;
      entry.step = last->step;
    } else {
      entry.text = absl::StrCat(JobName(job), " has told no ", objective);
    }
    happened.push_back(entry);
    return;
  }
  if (trial.status == TrialStatus::kPaused) {
    if (trial.held_step.has_value() ||
        !std::holds_alternative<fsm::Suspended>(view->record.state)) {
      return;
    }
    entry.kind = EntryKind::kHeld;
    entry.step = view->checkpoint_step;
    happened.push_back(entry);
    return;
  }
  if (trial.rung + 1 >= core::sweeping::RungCount(state_->definition())) return;
  const auto report = work.watch->At(trial.rung);
  if (!report.has_value()) return;
  entry.kind = EntryKind::kReported;
  entry.step = report->step;
  entry.value = report->value;
  entry.can_pause = !record_.spec.has_program() || view->checkpoint_step > 0;
  happened.push_back(entry);
}

std::vector<Entry> Sweep::Observe(const runtime::Board& board, store::MetricsStore& metrics,
                                  int64_t now_us) {
  trouble_.clear();
  std::vector<Entry> happened;
  if (state_->has_ended()) return happened;
  for (int32_t i = 0; i < static_cast<int32_t>(trials_.size()); ++i) {
    if (state_->trials()[static_cast<size_t>(i)].has_ended()) continue;
    ObserveTrial(i, board, metrics, happened);
  }
  const v1::SweepSpec& sweep = record_.spec.sweep();
  if (sweep.has_budget() && !state_->is_budget_used()) {
    if (DeviceTime(board, now_us) >= codec::FromDuration(sweep.budget())) {
      Entry used;
      used.kind = EntryKind::kBudgetUsed;
      happened.push_back(used);
    }
  }
  return happened;
}

std::string Sweep::BeginOf(const Entry& entry) const {
  const v1::SweepSpec& spec = record_.spec.sweep();
  const auto index = static_cast<size_t>(entry.trial);
  if (entry.kind == EntryKind::kStarted) {
    return ToText({sweeps::ValuesOf(spec, space_, entry.trial), std::nullopt});
  }
  if (entry.kind == EntryKind::kRestarted) return ToText(trials_[index].begin);
  Begin begin;
  begin.values = space_.Explore(ValuesOf(entry.donor), spec.seed(), entry.trial, entry.rung);
  const JobId donor = NewestJob(entry.donor);
  if (donor != JobId{} && entry.step > 0) begin.from = core::CheckpointRef{donor, entry.step};
  return ToText(begin);
}

std::vector<Entry> Sweep::Extend(const std::vector<Entry>& happened, int64_t now_us) const {
  core::sweeping::State next = *state_;
  std::vector<Entry> entries;
  const auto add = [&](Entry entry) {
    entry.time_us = now_us;
    entries.push_back(std::move(entry));
  };
  for (const Entry& entry : happened) {
    if (next.Apply(entry)) add(entry);
  }
  while (auto decision = core::sweeping::Decide(next)) {
    if (!next.Apply(*decision)) {
      LogError("a decision of a sweep cannot be applied, and the sweep waits",
               {{"sweep", SweepName(record_.number)}, {"trial", std::to_string(decision->trial)}});
      break;
    }
    if (BeginsJob(decision->kind)) decision->text = BeginOf(*decision);
    add(*std::move(decision));
  }
  return entries;
}

absl::Status Sweep::TakeOver(const std::vector<Entry>& entries) {
  is_settled_ = false;
  for (const Entry& entry : entries) {
    (void)state_->Apply(entry);
    ++next_sequence_;
    if (entry.kind == EntryKind::kEnded) end_us_ = entry.time_us;
    if (entry.kind == EntryKind::kRetryRequested) end_us_ = 0;
    trials_.resize(state_->trials().size());
    if (entry.trial < 0 || static_cast<size_t>(entry.trial) >= trials_.size()) continue;
    TrialWork& work = trials_[static_cast<size_t>(entry.trial)];
    if (BeginsJob(entry.kind)) {
      TY_ASSIGN_OR_RETURN(work.begin, BeginFromText(entry.text));
      work.refusal.clear();
      work.must_resume = work.must_suspend = false;
    } else if (entry.kind == EntryKind::kContinued) {
      work.must_resume = true;
      work.must_suspend = false;
    } else if (entry.kind == EntryKind::kPaused) {
      work.must_suspend = true;
      work.must_resume = false;
    }
  }
  return absl::OkStatus();
}

void Sweep::NoteJob(const store::TrialJob& job) {
  const auto index = static_cast<size_t>(job.trial);
  if (job.trial >= 0 && index < trials_.size()) trials_[index].jobs[job.generation] = job.job;
}

void Sweep::NoteRefusal(const NewJob& job, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDeadlineExceeded:
      trouble_ = absl::StrCat("the job of trial ", job.trial,
                              " is submitted again soon: ", status.message());
      return;
    default:
      trials_[static_cast<size_t>(job.trial)].refusal =
          absl::StrCat("its job cannot be submitted: ", status.message());
  }
}

void Sweep::AddActions(int32_t index, const runtime::Board& board, std::vector<Action>& actions) {
  const Trial& trial = state_->trials()[static_cast<size_t>(index)];
  TrialWork& work = trials_[static_cast<size_t>(index)];
  const std::string name = TrialName(record_.number, index);
  const auto act = [&](Action::Kind kind, JobId job, std::string reason) {
    actions.push_back({kind, {}, job, std::move(reason)});
  };
  const auto cancel = [&](JobId job, std::string reason) {
    const auto view = board.FindJob(job);
    if (view == nullptr || fsm::IsFinal(view->record.state)) return;
    if (const auto* stopping = std::get_if<fsm::Stopping>(&view->record.state);
        stopping != nullptr && stopping->reason == core::StopReason::kCancel) {
      return;
    }
    act(Action::Kind::kCancel, job, std::move(reason));
  };
  for (const auto& [generation, job] : work.jobs) {
    if (generation >= trial.generation) break;
    cancel(job, absl::StrCat("another job trains ", name, " now"));
  }
  const JobId job = NewestJob(index);
  if (job == JobId{}) {
    if (trial.status == TrialStatus::kActive && work.refusal.empty()) {
      actions.push_back(
          {Action::Kind::kSubmit, {index, trial.generation, work.begin}, JobId{}, ""});
    }
    return;
  }
  if (trial.status == TrialStatus::kStopped) {
    return cancel(job, absl::StrCat(name, " is stopped"));
  }
  const auto view = board.FindJob(job);
  if (view == nullptr || fsm::IsFinal(view->record.state)) {
    work.must_suspend = work.must_resume = false;
    return;
  }
  const core::JobState& state = view->record.state;
  const bool is_suspended = std::holds_alternative<fsm::Suspended>(state);
  const bool is_stopping = std::holds_alternative<fsm::Stopping>(state);
  if (work.must_suspend) {
    if (is_suspended) {
      work.must_suspend = false;
    } else if (!is_stopping) {
      act(Action::Kind::kSuspend, job, absl::StrCat(name, " waits for the others"));
    }
  } else if (work.must_resume) {
    if (is_suspended) act(Action::Kind::kResume, job, "");
    // A job that is being suspended is resumed once it is.
    if (!is_stopping) work.must_resume = false;
  }
}

std::vector<Action> Sweep::Actions(const runtime::Board& board) {
  std::vector<Action> actions;
  for (int32_t i = 0; i < static_cast<int32_t>(trials_.size()); ++i) AddActions(i, board, actions);
  is_settled_ = state_->has_ended() && actions.empty();
  return actions;
}

}  // namespace trainyard::sweeps
