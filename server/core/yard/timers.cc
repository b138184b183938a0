// Does what is due because time has passed: leases run out, attempts are lost, time limits are
// reached, stops no longer wait, streams are given up, jobs wake.
#include "server/core/yard/timers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

// By then the supervisor has killed the ranks by itself. Their lease is renewed only while the
// worker has answers from the server, and it started before the worker's last report arrived here.
int64_t LostDeadline(const YardState& state, const Contact& contact, JobId job) {
  return contact.unreachable_since_us + state.ledger.job(job).submission->disconnect_keep_us +
         state.config.lease_grace_us + state.config.lost_margin_us;
}

bool HoldsOn(const YardState& state, AttemptId id, const std::string& worker) {
  return HoldsDevices(FindPart(state.ledger.attempt(id), worker)->state);
}

std::optional<int64_t> WorkerDeadline(const YardState& state, const std::string& name) {
  const WorkerState& worker = state.ledger.worker(name).state;
  if (std::holds_alternative<worker_fsm::Active>(worker)) {
    return state.contacts.LeaseDeadline(name);
  }
  if (!std::holds_alternative<worker_fsm::Unreachable>(worker)) return std::nullopt;
  const Contact& contact = state.contacts.of(name);
  if (!HasHoldingParts(state, name)) {
    return contact.unreachable_since_us + state.config.gone_after_us;
  }
  std::optional<int64_t> next;
  for (const AttemptId& id : state.live.On(name)) {
    if (HoldsOn(state, id, name)) TakeEarlier(next, LostDeadline(state, contact, id.job));
  }
  return next;
}

std::optional<int64_t> TimeLimitDeadline(const YardState& state, AttemptId id) {
  const JobRecord& job = state.ledger.job(id.job);
  const LiveAttempt& live = state.live.at(id);
  if (job.submission->time_limit_us == 0 || !live.run_since_us.has_value() ||
      !std::holds_alternative<job_fsm::Running>(job.state)) {
    return std::nullopt;
  }
  return *live.run_since_us + job.submission->time_limit_us - job.run_time_us;
}

// Returns when the job must be warned of its time limit, or nothing if it was warned already or
// needs no warning.
std::optional<int64_t> WarningDeadline(const YardState& state, AttemptId id) {
  const int64_t warning_us = state.ledger.job(id.job).submission->time_limit_warning_us;
  if (warning_us == 0 || state.live.at(id).is_warned) return std::nullopt;
  const auto limit = TimeLimitDeadline(state, id);
  return limit.has_value() ? std::optional<int64_t>(*limit - warning_us) : std::nullopt;
}

std::optional<int64_t> StopDeadline(const YardState& state, AttemptId id) {
  const PendingStop* stop = state.stops.Find(id);
  if (stop == nullptr ||
      std::holds_alternative<job_fsm::Stopping>(state.ledger.job(id.job).state)) {
    return std::nullopt;
  }
  return stop->deadline_us;
}

std::optional<int64_t> AttemptDeadline(const YardState& state, AttemptId id) {
  std::optional<int64_t> next = state.live.at(id).drain_deadline_us;
  TakeEarlier(next, TimeLimitDeadline(state, id));
  TakeEarlier(next, WarningDeadline(state, id));
  TakeEarlier(next, StopDeadline(state, id));
  return next;
}

bool IsDue(std::optional<int64_t> deadline, Now now) {
  return deadline.has_value() && now.uptime_us >= *deadline;
}

void FireLease(YardState& state, const std::string& name, Now now) {
  const bool is_deaf = state.contacts.of(name).is_deaf();
  state.contacts.LoseTouch(name);
  const int64_t seconds = state.config.lease_us / kSecond;
  Stepper(state, now)
      .StepWorker(name, worker_fsm::LeaseExpired{now.wall_us}, "server",
                  is_deaf ? absl::StrCat("its reports come, but for ", seconds,
                                         " s it has not heard the answers")
                          : absl::StrCat("no sync for ", seconds, " s"));
}

void FireWorkerTimers(YardState& state, const std::string& name, Now now) {
  const WorkerRecord& worker = state.ledger.worker(name);
  if (std::holds_alternative<worker_fsm::Active>(worker.state)) {
    if (now.uptime_us < state.contacts.LeaseDeadline(name)) return;
    FireLease(state, name, now);
  }
  if (!std::holds_alternative<worker_fsm::Unreachable>(worker.state)) return;
  const Contact& contact = state.contacts.of(name);
  Stepper stepper(state, now);
  stepper.LoseParts(name, "was out of contact for too long",
                    [&](JobId job) { return now.uptime_us >= LostDeadline(state, contact, job); });
  if (!HasHoldingParts(state, name) &&
      now.uptime_us >= contact.unreachable_since_us + state.config.gone_after_us) {
    stepper.StepWorker(name, worker_fsm::GaveUp{now.wall_us}, "server",
                       "was out of contact for too long");
  }
}

void GiveUpStreams(YardState& state, AttemptId id, Now now) {
  for (AttemptPart& part : state.ledger.EditAttempt(id).parts) {
    if (part.state != PartState::kExited) continue;
    part.state = PartState::kDrained;
    state.changes.Touch(part.worker);
    state.ledger.AddEvent(
        now.wall_us, AttemptName(id), "ATTEMPT_NOT_DRAINED", "server",
        absl::StrCat("worker ", part.worker, " has not delivered everything within ",
                     state.config.drain_limit_us / kSecond, " s"));
  }
  Stepper(state, now).CheckGone(id, "server");
}

void FireAttemptTimers(YardState& state, AttemptId id, Now now) {
  Stepper stepper(state, now);
  const Submission& submission = *state.ledger.job(id.job).submission;
  if (IsDue(TimeLimitDeadline(state, id), now)) {
    const std::string detail = absl::StrCat(
        "time limit of ", DurationText(absl::Microseconds(submission.time_limit_us)), " reached");
    TY_CHECK_OK(stepper.StepJob(id.job, job_fsm::TimeLimit{detail}, "server", ""));
  }
  if (IsDue(WarningDeadline(state, id), now)) {
    state.live.at(id).is_warned = true;
    stepper.AskForCheckpoint(id);
    const absl::Duration left = absl::Microseconds(submission.time_limit_warning_us);
    state.ledger.AddEvent(now.wall_us, JobName(id.job), "TIME_LIMIT_NEAR", "server",
                          absl::StrCat("the time limit is ", DurationText(left),
                                       " away; a checkpoint was requested"));
  }
  if (IsDue(StopDeadline(state, id), now)) stepper.FireStop(id, "scheduler");
  if (IsDue(state.live.at(id).drain_deadline_us, now)) GiveUpStreams(state, id, now);
}

void WakeJob(YardState& state, JobId id, Now now) {
  // After a backoff, the delayed start may still lie in the future.
  const int64_t left = Stepper(state, now).StartDelay(*state.ledger.job(id).submission);
  state.wakes.Set(id, left > 0 ? std::optional<int64_t>(now.uptime_us + left) : std::nullopt);
  state.changes.jobs.insert(id);
  state.changes.plan_again = true;
}

}  // namespace

void TakeEarlier(std::optional<int64_t>& earliest, std::optional<int64_t> deadline) {
  if (!deadline.has_value()) return;
  if (!earliest.has_value() || *deadline < *earliest) earliest = deadline;
}

// The timers of a worker and of the attempts on it change only when the worker is touched.
void RefreshTimers(YardState& state) {
  for (const std::string& name : state.changes.touched_workers) {
    state.worker_timers.Set(name, WorkerDeadline(state, name));
    for (const AttemptId& id : state.live.On(name)) {
      state.attempt_timers.Set(id, AttemptDeadline(state, id));
    }
  }
}

void FireTimers(YardState& state, Now now) {
  RefreshTimers(state);
  for (const std::string& name : state.worker_timers.Due(now.uptime_us)) {
    FireWorkerTimers(state, name, now);
    state.worker_timers.Set(name, WorkerDeadline(state, name));
  }
  RefreshTimers(state);
  for (const AttemptId& id : state.attempt_timers.Due(now.uptime_us)) {
    if (state.live.Find(id) == nullptr) continue;  // it ended together with another one
    FireAttemptTimers(state, id, now);
    if (state.live.Find(id) != nullptr) state.attempt_timers.Set(id, AttemptDeadline(state, id));
  }
  for (const JobId& id : state.wakes.Due(now.uptime_us)) WakeJob(state, id, now);
}

std::optional<int64_t> NextTimer(const YardState& state) {
  std::optional<int64_t> next = state.worker_timers.Earliest();
  TakeEarlier(next, state.attempt_timers.Earliest());
  TakeEarlier(next, state.wakes.Earliest());
  return next;
}

std::vector<std::string> ContactRemarks(const YardState& state, AttemptId attempt) {
  std::vector<std::string> remarks;
  for (const AttemptPart& part : state.ledger.attempt(attempt).parts) {
    if (!HoldsDevices(part.state)) continue;
    const WorkerState& worker = state.ledger.worker(part.worker).state;
    if (!std::holds_alternative<worker_fsm::Unreachable>(worker)) continue;
    const Contact& contact = state.contacts.of(part.worker);
    const int64_t wait_us =
        LostDeadline(state, contact, attempt.job) - contact.unreachable_since_us;
    remarks.push_back(absl::StrCat("worker ", part.worker, " is out of contact; if that lasts ",
                                   DurationText(absl::Microseconds(wait_us)),
                                   ", its part of the job counts as lost"));
  }
  return remarks;
}

bool HasHoldingParts(const YardState& state, const std::string& worker) {
  const std::set<AttemptId>& on = state.live.On(worker);
  return std::any_of(on.begin(), on.end(),
                     [&](const AttemptId& id) { return HoldsOn(state, id, worker); });
}

}  // namespace trainyard::core
