// Stepping the machines, and what follows from a transition: events, times, indices, and the inputs
// that one machine has for another.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/planted_bug.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {
namespace {

template <typename T>
T* Get(job_fsm::Result& result) {
  return std::get_if<T>(&result);
}

std::string FailureText(const Failure& failure) {
  std::string text = absl::StrCat(Text(failure.failure_class));
  if (!failure.reason.empty()) absl::StrAppend(&text, " ", failure.reason);
  if (!failure.message.empty()) absl::StrAppend(&text, ": ", failure.message);
  return text;
}

// What a state itself has to say in the history.
std::string Detail(const JobState& state) {
  if (const auto* queued = std::get_if<job_fsm::Queued>(&state)) {
    return queued->last_failure.has_value() ? FailureText(*queued->last_failure) : "";
  }
  if (const auto* failed = std::get_if<job_fsm::Failed>(&state)) {
    return FailureText(failed->failure);
  }
  if (const auto* held = std::get_if<job_fsm::Suspended>(&state)) {
    return held->failure.has_value() ? FailureText(*held->failure) : "";
  }
  if (const auto* stopping = std::get_if<job_fsm::Stopping>(&state)) {
    return stopping->detail.empty() ? std::string(Text(stopping->reason)) : stopping->detail;
  }
  return "";
}

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

std::string Join(std::string a, std::string b) {
  if (a.empty() || b.empty() || a == b) return a.empty() ? b : a;
  return absl::StrCat(a, "; ", b);
}

// The verb of a refusal: "cannot be suspended".
absl::string_view Verb(const job_fsm::Input& input) {
  if (std::holds_alternative<job_fsm::Cancel>(input)) return "cancelled";
  if (std::holds_alternative<job_fsm::Suspend>(input)) return "suspended";
  if (std::holds_alternative<job_fsm::Resume>(input)) return "resumed";
  return "changed";
}

}  // namespace

absl::Status Yard::Impl::StepJob(JobId id, const job_fsm::Input& input, absl::string_view actor,
                                 std::string message, Now now) {
  const auto found = snapshot().jobs.find(id);
  if (found == snapshot().jobs.end()) return error::JobNotFound(JobName(id));
  const JobState before = found->second.state;
  job_fsm::Result result = job_fsm::Step(before, input);
  if (Get<Refused>(result) != nullptr) {
    return error::JobStateConflict(JobName(id), job_fsm::Name(before), Verb(input));
  }
  auto* transition = Get<Transition<JobState, job_fsm::Effect>>(result);
  if (transition == nullptr) return absl::OkStatus();  // ignored

  JobRecord& job = ledger_.EditJob(id);
  job.state = std::move(transition->next);
  EnterJobState(id, before, now);
  ledger_.AddEvent(now.wall_us, JobName(id), absl::StrCat("JOB_", job_fsm::Name(job.state)), actor,
                   Join(Detail(job.state), std::move(message)));
  for (const job_fsm::Effect& effect : transition->effects) {
    if (const auto* stop = std::get_if<job_fsm::StopAttempt>(&effect)) {
      StepAttempt({id, job.attempt}, attempt_fsm::Stop{stop->reason}, actor, now);
    } else {
      ++job.retries;
    }
  }
  return absl::OkStatus();
}

// Keeps times and indices in step with the state.
void Yard::Impl::EnterJobState(JobId id, const JobState& before, Now now) {
  JobRecord& job = ledger_.EditJob(id);
  plan_again_ = true;
  const bool was_queued = std::holds_alternative<job_fsm::Queued>(before);
  const bool is_queued = std::holds_alternative<job_fsm::Queued>(job.state);
  if (was_queued) LeaveQueue(id);
  if (is_queued) EnterQueue(id, now);
  if (!is_queued && reasons_.erase(id) > 0) turn_.reasons_changed.insert(id);
  const bool waits_no_more =
      std::holds_alternative<job_fsm::Suspended>(job.state) || job_fsm::IsFinal(job.state);
  if (waits_no_more) Withdraw(id, now);
  if (std::holds_alternative<job_fsm::Starting>(job.state)) job.stop_reason = StopReason::kNone;
  if (const auto* stopping = std::get_if<job_fsm::Stopping>(&job.state)) {
    job.stop_reason = stopping->reason;
  }
  // Without an attempt there is no stop, only the verb's reason.
  if (const auto* suspended = std::get_if<job_fsm::Suspended>(&job.state)) {
    job.stop_reason = suspended->failure.has_value() ? StopReason::kNone : StopReason::kSuspend;
  }
  if (std::holds_alternative<job_fsm::Cancelled>(job.state)) job.stop_reason = StopReason::kCancel;
  if (!job_fsm::IsFinal(job.state)) return;
  job.end_us = now.wall_us;
  if (const auto waiting = dependents_.find(id);
      waiting != dependents_.end() && !TY_BUG(forget_dependents)) {
    stale_jobs_.insert(waiting->second.begin(), waiting->second.end());
  }
  auto* failed = std::get_if<job_fsm::Failed>(&job.state);
  if (failed != nullptr && std::holds_alternative<job_fsm::Stopping>(before) &&
      job.stop_reason == StopReason::kTimeLimit) {
    const std::optional<CheckpointRef> last = ResumePoint(job);
    absl::StrAppend(&failed->failure.message,
                    last.has_value() && last->job == id
                        ? absl::StrCat("; last checkpoint at step ", last->step)
                        : "; no checkpoint was written");
  }
  if (!job.submission->parent_checkpoint.has_value()) return;
  const CheckpointRef parent = *job.submission->parent_checkpoint;
  if (--parents_.at(parent) == 0) {
    parents_.erase(parent);
    CleanCheckpoints(parent.job, "server", now);
  }
}

void Yard::Impl::StepAttempt(AttemptId id, const attempt_fsm::Input& input, absl::string_view actor,
                             Now now) {
  attempt_fsm::Result result = attempt_fsm::Step(ledger_.attempt(id).state, input);
  TY_CHECK(!std::holds_alternative<Refused>(result));
  auto* transition = std::get_if<Transition<AttemptState, attempt_fsm::Effect>>(&result);
  if (transition == nullptr) return;  // ignored
  AttemptRecord& attempt = ledger_.EditAttempt(id);
  attempt.state = std::move(transition->next);
  ledger_.AddEvent(now.wall_us, AttemptName(id),
                   absl::StrCat("ATTEMPT_", attempt_fsm::Name(attempt.state)), actor,
                   Detail(attempt.state));
  TouchWorkersOf(attempt);
  for (const attempt_fsm::Effect& effect : transition->effects) {
    if (std::holds_alternative<attempt_fsm::TellEnded>(effect)) {
      EndAttempt(id, actor, now);
      continue;
    }
    attempt.start_us = now.wall_us;
    live_.at(id).run_since_us = now.uptime_us;
    live_.at(id).started_us = now.uptime_us;
    live_.at(id).safe_since_us = now.uptime_us;
    JobRecord& job = ledger_.EditJob(id.job);
    if (job.start_us == 0) job.start_us = now.wall_us;
    TY_CHECK_OK(StepJob(id.job, job_fsm::AllRanksRunning{}, actor, "", now));
  }
}

void Yard::Impl::EndAttempt(AttemptId id, absl::string_view actor, Now now) {
  LiveAttempt& live = live_.at(id);
  CountRunTime(id.job, live, now);
  Charge(id, live, now);
  AttemptRecord& attempt = ledger_.EditAttempt(id);
  attempt.end_us = now.wall_us;
  for (const AttemptPart& part : attempt.parts) {
    const auto on = live_on_.find(part.worker);
    on->second.erase(id);
    if (on->second.empty()) live_on_.erase(on);
  }
  live_.erase(id);
  attempt_timers_.Set(id, std::nullopt);
  running_.erase(id.job);
  JobRecord& job = ledger_.EditJob(id.job);
  if (std::holds_alternative<attempt_fsm::Succeeded>(attempt.state) && attempt.start_us == 0) {
    // Too short for a report in between.
    attempt.start_us = attempt.create_us;
    if (job.start_us == 0) job.start_us = attempt.create_us;
  }
  const job_fsm::Input input = EndForJob(attempt, now);
  if (std::holds_alternative<attempt_fsm::Failed>(attempt.state) ||
      std::holds_alternative<attempt_fsm::Lost>(attempt.state)) {
    ++job.failures;
  }
  TY_CHECK_OK(
      StepJob(id.job, input, actor, absl::StrCat("attempt ", id.number, " has ended"), now));
  CleanCheckpoints(id.job, "server", now);
}

// What the end of an attempt means to its job.
job_fsm::Input Yard::Impl::EndForJob(const AttemptRecord& attempt, Now now) const {
  const auto judge = [&](const Failure& failure) {
    return JudgeFailure(config_, failure, HistoryOf(ledger_.job(attempt.id.job)));
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

FailureHistory Yard::Impl::HistoryOf(const JobRecord& job) const {
  FailureHistory history;
  history.retries = job.retries;
  history.max_retries = job.submission->max_retries;
  history.failures = job.failures;
  const auto& attempts = snapshot().attempts;
  for (auto it = attempts.lower_bound({job.id, 0}); it != attempts.end() && it->first.job == job.id;
       ++it) {
    for (const AttemptPart& part : it->second.parts) {
      if (part.outcome.kind == OutcomeKind::kFailed && part.outcome.failed_rank == 0 &&
          !it->second.ranks.empty() && it->second.ranks.front().worker == part.worker) {
        history.rank_zero.push_back({part.worker, part.outcome.failure});
      }
    }
  }
  return history;
}

void Yard::Impl::StepWorker(const std::string& name, const worker_fsm::Input& input,
                            absl::string_view actor, std::string message, Now now) {
  worker_fsm::Result result = worker_fsm::Step(ledger_.worker(name).state, input);
  TY_CHECK(!std::holds_alternative<Refused>(result));
  auto* transition = std::get_if<Transition<WorkerState, worker_fsm::Effect>>(&result);
  if (transition == nullptr) return;  // ignored
  Touch(name);
  Contact& contact = contacts_.at(name);
  WorkerRecord& worker = ledger_.EditWorker(name);
  worker.state = transition->next;
  worker.last_seen_us = contact.last_seen_us;
  ledger_.AddEvent(now.wall_us, WorkerName(name),
                   absl::StrCat("WORKER_", worker_fsm::Name(worker.state)), actor,
                   std::move(message));
  for (const worker_fsm::Effect& effect : transition->effects) {
    if (std::holds_alternative<worker_fsm::PlanAgain>(effect)) {
      plan_again_ = true;
    } else {
      sessions_.erase(contact.session);
      const int64_t last_seen_us = contact.last_seen_us;
      contact = Contact{};
      contact.last_seen_us = last_seen_us;
    }
  }
}

absl::Status Yard::Impl::StepScheduling(const std::string& name,
                                        const worker_fsm::SchedulingInput& input,
                                        absl::string_view actor, std::string message, Now now) {
  if (snapshot().workers.count(name) == 0) return error::WorkerNotFound(WorkerName(name));
  auto result = worker_fsm::Step(worker_fsm::ToState(ledger_.worker(name).scheduling), input);
  using Change = Transition<worker_fsm::SchedulingState, worker_fsm::SchedulingEffect>;
  auto* transition = std::get_if<Change>(&result);
  if (transition == nullptr) return absl::OkStatus();  // ignored: it is so already
  WorkerRecord& worker = ledger_.EditWorker(name);
  worker.scheduling = worker_fsm::FromState(transition->next);
  ledger_.AddEvent(now.wall_us, WorkerName(name), absl::StrCat("WORKER_", Text(worker.scheduling)),
                   actor, std::move(message));
  Touch(name);
  plan_again_ = true;
  // StopAttempts is up to the caller, who knows how long the drain may take.
  return absl::OkStatus();
}

// Run time is counted by the monotonic clock, and stored with each report of progress: what a
// server that dies forgets is less than a sync interval.
void Yard::Impl::CountRunTime(JobId id, LiveAttempt& live, Now now) {
  if (!live.run_since_us.has_value()) return;
  ledger_.EditJob(id).run_time_us += now.uptime_us - *live.run_since_us;
  live.run_since_us = now.uptime_us;
}

// Deletes what keep.last and keep.best no longer cover. A checkpoint stays while a job that has not
// ended is to start from it, or an attempt that is coming up.
void Yard::Impl::CleanCheckpoints(JobId job, absl::string_view actor, Now now) {
  const auto record = snapshot().jobs.find(job);
  if (record == snapshot().jobs.end()) return;
  const Submission& submission = *record->second.submission;
  std::vector<const CheckpointRecord*> records;  // ascending
  std::vector<CheckpointRef> all;
  const auto& checkpoints = snapshot().checkpoints;
  for (auto it = checkpoints.lower_bound({job, std::numeric_limits<int64_t>::min()});
       it != checkpoints.end() && it->first.job == job; ++it) {
    records.push_back(&it->second);
    all.push_back(it->first);
  }
  const size_t kept = static_cast<size_t>(submission.checkpoints_kept);
  if (all.size() <= kept) return;
  std::optional<CheckpointRef> best;
  if (const CheckpointRecord* found = BestCheckpoint(submission, records);
      submission.keeps_best && found != nullptr && !TY_BUG(delete_the_best)) {
    best = found->id;
  }
  if (TY_BUG(delete_the_newest)) {
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept));
  } else {
    all.resize(all.size() - kept);
  }
  const auto live = live_.find({job, record->second.attempt});
  for (const CheckpointRef& id : all) {
    if (parents_.count(id) > 0 || id == best) continue;
    if (live != live_.end() && ledger_.attempt(live->first).resume_from == id) continue;
    CountStored(snapshot().checkpoints.at(id), -1);
    ledger_.DeleteCheckpoint(id);
    ledger_.AddEvent(now.wall_us, JobName(job), "CHECKPOINT_DELETED", actor,
                     absl::StrCat("checkpoint at step ", id.step, "; the newest ", kept,
                                  best.has_value() ? " and the best stay" : " stay"));
  }
}

// The newest checkpoint of its own, else the one that it was created from.
std::optional<CheckpointRef> Yard::Impl::ResumePoint(const JobRecord& job) const {
  if (TY_BUG(resume_from_uncommitted) && job.progress.step > 0) {
    return CheckpointRef{job.id, job.progress.step};
  }
  const auto& checkpoints = snapshot().checkpoints;
  auto it = checkpoints.upper_bound({job.id, std::numeric_limits<int64_t>::max()});
  if (it != checkpoints.begin() && std::prev(it)->first.job == job.id) return std::prev(it)->first;
  return job.submission->parent_checkpoint;
}

void Yard::Impl::TouchWorkersOf(const AttemptRecord& attempt) {
  for (const AttemptPart& part : attempt.parts) Touch(part.worker);
}

}  // namespace trainyard::core
