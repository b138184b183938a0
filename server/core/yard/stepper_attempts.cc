// Steps attempts, handles the end of an attempt and what it means to its job, and loses parts.
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "server/core/lifecycle/retry_policy.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

// Returns the words that a state adds to its event.
std::string Detail(const AttemptState& state) {
  if (const auto* failed = std::get_if<attempt_fsm::Failed>(&state)) {
    return FailureText(failed->failure);
  }
  if (const auto* lost = std::get_if<attempt_fsm::Lost>(&state)) return FailureText(lost->failure);
  if (const auto* preempted = std::get_if<attempt_fsm::Preempted>(&state)) {
    return std::string(Text(preempted->reason));
  }
  if (const auto* stopping = std::get_if<attempt_fsm::Stopping>(&state)) {
    return stopping->reason == StopReason::kNone ? FailureText(stopping->failure)
                                                 : std::string(Text(stopping->reason));
  }
  return "";
}

// Returns true if an attempt that started from `before` left a newer checkpoint of its job,
// `after`.
bool HasProgressed(JobId job, const std::optional<CheckpointRef>& before,
                   const std::optional<CheckpointRef>& after) {
  if (!after.has_value() || after->job != job) return false;
  return !before.has_value() || before->job != job || before->step < after->step;
}

bool HasFailed(const AttemptRecord& attempt) {
  return std::holds_alternative<attempt_fsm::Failed>(attempt.state) ||
         std::holds_alternative<attempt_fsm::Lost>(attempt.state);
}

// Returns what counts against the job when its newest attempt has failed: what happened since an
// attempt last made progress. A long training meets many failures that have nothing to do with each
// other, and one that progresses comes to its end.
FailureHistory HistoryOf(const Snapshot& snapshot, const JobRecord& job) {
  FailureHistory history;
  history.retries = job.retries;
  history.max_retries = job.submission->max_retries;
  const auto& attempts = snapshot.attempts;
  for (auto it = attempts.lower_bound({job.id, 0}); it != attempts.end() && it->first.job == job.id;
       ++it) {
    const AttemptRecord& attempt = it->second;
    const auto next = std::next(it);
    const bool is_newest = next == attempts.end() || next->first.job != job.id;
    if (HasProgressed(job.id, attempt.resume_from,
                      is_newest ? ResumePoint(snapshot, job) : next->second.resume_from)) {
      history.failures = 0;
      history.rank_zero.clear();
      if (is_newest) history.retries = 0;
    }
    if (!is_newest && HasFailed(attempt)) ++history.failures;
    for (const AttemptPart& part : attempt.parts) {
      // These say nothing about the job: no rank has started.
      const std::string& reason = part.outcome.failure.reason;
      if (reason == error::kCheckpointDamaged || reason == error::kOwnerRefused) continue;
      if (part.outcome.kind == OutcomeKind::kFailed && part.outcome.failed_rank == 0 &&
          !attempt.ranks.empty() && attempt.ranks.front().worker == part.worker) {
        history.rank_zero.push_back({part.worker, part.outcome.failure});
      }
    }
  }
  return history;
}

// Returns the input that the end of this attempt gives to the job's machine.
job_fsm::Input EndForJob(const YardState& yard, const AttemptRecord& attempt,
                         const FailureHistory& history, Now now) {
  const auto judge = [&](const Failure& failure) {
    return JudgeFailure(yard.config, failure, history);
  };
  const auto not_before = [&](const RetryVerdict& verdict) {
    return verdict.delay_us == 0 ? 0 : now.wall_us + verdict.delay_us;
  };
  if (const auto* failed = std::get_if<attempt_fsm::Failed>(&attempt.state)) {
    const RetryVerdict verdict = judge(failed->failure);
    return job_fsm::AttemptFailed{verdict.failure, verdict.give_up, verdict.hold,
                                  verdict.counts_as_retry, not_before(verdict)};
  }
  if (const auto* lost = std::get_if<attempt_fsm::Lost>(&attempt.state)) {
    const RetryVerdict verdict = judge(lost->failure);
    return job_fsm::AttemptLost{verdict.failure, not_before(verdict)};
  }
  if (std::holds_alternative<attempt_fsm::Succeeded>(attempt.state)) {
    return job_fsm::AttemptSucceeded{};
  }
  return job_fsm::AttemptStopped{};
}

}  // namespace

void Stepper::StepAttempt(AttemptId id, const attempt_fsm::Input& input, absl::string_view actor) {
  attempt_fsm::Result result = attempt_fsm::Step(yard_.ledger.attempt(id).state, input);
  TY_CHECK(!std::holds_alternative<Refused>(result));
  auto* transition = std::get_if<Transition<AttemptState, attempt_fsm::Effect>>(&result);
  if (transition == nullptr) return;  // ignored
  AttemptRecord& attempt = yard_.ledger.EditAttempt(id);
  attempt.state = std::move(transition->next);
  AddEvent(AttemptName(id), absl::StrCat("ATTEMPT_", attempt_fsm::Name(attempt.state)), actor,
           Detail(attempt.state));
  TouchWorkersOf(attempt);
  for (const attempt_fsm::Effect& effect : transition->effects) {
    if (std::holds_alternative<attempt_fsm::TellEnded>(effect)) {
      EndAttempt(id, actor);
      continue;
    }
    attempt.start_us = now_.wall_us;
    LiveAttempt& live = yard_.live.at(id);
    live.run_since_us = now_.uptime_us;
    live.started_us = now_.uptime_us;
    live.safe_since_us = now_.uptime_us;
    JobRecord& job = yard_.ledger.EditJob(id.job);
    if (job.start_us == 0) job.start_us = now_.wall_us;
    TY_CHECK_OK(StepJob(id.job, job_fsm::AllRanksRunning{}, actor, ""));
  }
}

void Stepper::EndAttempt(AttemptId id, absl::string_view actor) {
  LiveAttempt& live = yard_.live.at(id);
  CountRunTime(id.job, live);
  Accounts::Charge(yard_.ledger, id, live, now_);
  AttemptRecord& attempt = yard_.ledger.EditAttempt(id);
  attempt.end_us = now_.wall_us;
  yard_.live.Remove(attempt);
  yard_.stops.Remove(id);
  yard_.attempt_timers.Set(id, std::nullopt);
  yard_.changes.jobs.insert(id.job);
  JobRecord& job = yard_.ledger.EditJob(id.job);
  if (std::holds_alternative<attempt_fsm::Succeeded>(attempt.state) && attempt.start_us == 0) {
    // The attempt was so short that no report came between its start and its end.
    attempt.start_us = attempt.create_us;
    if (job.start_us == 0) job.start_us = attempt.create_us;
  }
  const FailureHistory history = HistoryOf(yard_.snapshot(), job);
  const job_fsm::Input input = EndForJob(yard_, attempt, history, now_);
  if (!std::holds_alternative<attempt_fsm::Succeeded>(attempt.state)) {
    job.retries = history.retries;
  }
  if (HasFailed(attempt)) ++job.failures;
  TY_CHECK_OK(StepJob(id.job, input, actor, absl::StrCat("attempt ", id.number, " has ended")));
  CleanCheckpoints(id.job, "server");
}

void Stepper::CountRunTime(JobId id, LiveAttempt& live) {
  if (!live.run_since_us.has_value()) return;
  yard_.ledger.EditJob(id).run_time_us += now_.uptime_us - *live.run_since_us;
  live.run_since_us = now_.uptime_us;
}

AttemptPart& Stepper::EditPart(AttemptId id, const std::string& worker) {
  for (AttemptPart& part : yard_.ledger.EditAttempt(id).parts) {
    if (part.worker == worker) return part;
  }
  CheckFailed(__FILE__, __LINE__, absl::StrCat(AttemptName(id), " has no part on ", worker));
}

void Stepper::LosePart(const std::string& worker, AttemptId id, std::string reason,
                       std::string message) {
  Accounts::Charge(yard_.ledger, id, yard_.live.at(id), now_);
  EditPart(id, worker).state = PartState::kLost;
  yard_.changes.plan_again = true;
  yard_.changes.Touch(worker);
  StepAttempt(id,
              attempt_fsm::PartFailed{{FailureClass::kLost, std::move(reason), std::move(message)}},
              "server");
  CheckGone(id, "server");
}

void Stepper::LoseParts(const std::string& worker, absl::string_view why,
                        absl::FunctionRef<bool(JobId)> is_lost) {
  const std::set<AttemptId> attempts = yard_.live.On(worker);
  for (const AttemptId& id : attempts) {
    const PartState state = FindPart(yard_.ledger.attempt(id), worker)->state;
    if (!HoldsDevices(state) || !is_lost(id.job)) continue;
    LosePart(worker, id, "WORKER_LOST", absl::StrCat("worker ", worker, " ", why));
  }
}

void Stepper::CheckGone(AttemptId id, absl::string_view actor) {
  bool succeeded = true;
  bool drained = true;
  for (const AttemptPart& part : yard_.ledger.attempt(id).parts) {
    if (HoldsDevices(part.state)) return;
    drained = drained && part.state != PartState::kExited;
    succeeded = succeeded && part.outcome.kind == OutcomeKind::kSucceeded;
  }
  if (drained) {
    StepAttempt(id, attempt_fsm::AllGone{succeeded}, actor);
  } else if (LiveAttempt& live = yard_.live.at(id); !live.drain_deadline_us.has_value()) {
    live.drain_deadline_us = now_.uptime_us + yard_.config.drain_limit_us;
  }
}

void Stepper::TouchWorkersOf(const AttemptRecord& attempt) {
  for (const AttemptPart& part : attempt.parts) yard_.changes.Touch(part.worker);
}

}  // namespace trainyard::core
