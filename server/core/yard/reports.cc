// Compares each report of a worker with what the server counts on there.
#include "server/core/yard/reports.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/core/yard/damage.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

// The keys of one worker's part of an attempt. They bound the memory; a gang has a few for each
// rank.
constexpr size_t kRendezvousKeysMax = 8192;
// A worker that reports a job which is further ahead is wrong.
constexpr int64_t kLostJobsMax = 100'000;

// A worker may judge for itself that the user or the hardware is at fault. All other failures are
// only known to be failures.
Outcome Checked(Outcome outcome) {
  FailureClass& given = outcome.failure.failure_class;
  if (outcome.kind == OutcomeKind::kFailed && given != FailureClass::kUserError &&
      given != FailureClass::kHardware) {
    given = FailureClass::kTransient;
  }
  return outcome;
}

bool AllParts(const AttemptRecord& attempt, PartState state) {
  return std::all_of(attempt.parts.begin(), attempt.parts.end(),
                     [state](const AttemptPart& part) { return part.state == state; });
}

bool IsToldToStop(const Contact& contact, const AttemptRecord& attempt) {
  return std::any_of(
      contact.desired.begin(), contact.desired.end(), [&attempt](const DesiredAttempt& desired) {
        return desired.attempt == attempt.id && desired.fencing_token == attempt.fencing_token &&
               desired.action == DesiredAction::kStop;
      });
}

// Applies one report of one worker.
class Reader {
 public:
  Reader(YardState& state, const std::string& worker, const SyncReport& report, Now now)
      : yard_(state),
        stepper_(state, now),
        worker_(worker),
        actor_(ActorOf(worker)),
        report_(report),
        now_(now) {}

  void TakeHealth();
  void TakeAttempts();

 private:
  // `seen` is null if the worker does not list the attempt, or lists it under a stale token.
  void TakePart(AttemptId id, const ObservedAttempt* seen);
  void PartNotListed(AttemptId id);
  void PartExited(AttemptId id, const ObservedAttempt& seen);
  Outcome CheckRefusal(AttemptId id, Outcome outcome) const;
  void TakeProgress(AttemptId id, const ObservedAttempt& seen);
  void TakeIsolation(AttemptId id, Isolation level);
  void TakeRendezvous(AttemptId id, const ObservedAttempt& seen);
  void NoteStep(AttemptId id, int64_t step);

  YardState& yard_;
  Stepper stepper_;
  const std::string& worker_;
  const std::string actor_;
  const SyncReport& report_;
  const Now now_;
};

void Reader::TakeHealth() {
  for (const DeviceRecord& reported : report_.devices) {
    const std::vector<DeviceRecord>& known = yard_.ledger.worker(worker_).devices;
    const auto found = std::find_if(
        known.begin(), known.end(),
        [&reported](const DeviceRecord& device) { return device.name == reported.name; });
    if (found == known.end()) continue;
    if (found->health == reported.health && found->health_reason == reported.health_reason) {
      continue;
    }
    const auto index = static_cast<size_t>(found - known.begin());
    DeviceRecord& device = yard_.ledger.EditWorker(worker_).devices[index];
    device.health = reported.health;
    device.health_reason = reported.health_reason;
    yard_.ledger.AddEvent(
        now_.wall_us, WorkerName(worker_), absl::StrCat("DEVICE_", Text(device.health)), actor_,
        device.health_reason.empty() ? device.name
                                     : absl::StrCat(device.name, ": ", device.health_reason));
    yard_.changes.Touch(worker_);
    yard_.changes.plan_again = true;
  }
}

void Reader::TakeAttempts() {
  std::map<AttemptId, const ObservedAttempt*> seen;
  for (const ObservedAttempt& attempt : report_.attempts) seen[attempt.attempt] = &attempt;
  // After a restore, workers know jobs that this server has lost. A new job of such a number would
  // be taken for the old one, whose ranks have not stopped yet.
  const JobId limit{yard_.snapshot().next_job + kLostJobsMax};
  const auto beyond = seen.lower_bound({limit, 0});
  if (beyond != seen.begin()) stepper_.SkipJobNumbers(std::prev(beyond)->first.job);
  const std::set<AttemptId> attempts = yard_.live.On(worker_);
  for (const AttemptId& id : attempts) {
    const auto found = seen.find(id);
    const bool is_current = found != seen.end() &&
                            found->second->fencing_token == yard_.ledger.attempt(id).fencing_token;
    TakePart(id, is_current ? found->second : nullptr);
  }
}

// A report has only those keys that the worker has not got back yet.
void Reader::TakeRendezvous(AttemptId id, const ObservedAttempt& seen) {
  auto& known = yard_.live.at(id).rendezvous[worker_];
  bool is_changed = false;
  for (const auto& [key, value] : seen.rendezvous) {
    const auto found = known.find(key);
    if (found == known.end() && known.size() >= kRendezvousKeysMax) continue;
    if (found != known.end() && found->second == value) continue;
    known[key] = value;
    is_changed = true;
  }
  if (is_changed) stepper_.TouchWorkersOf(yard_.ledger.attempt(id));
}

void Reader::TakePart(AttemptId id, const ObservedAttempt* seen) {
  const PartState before = FindPart(yard_.ledger.attempt(id), worker_)->state;
  if (seen == nullptr) {
    PartNotListed(id);
    return;
  }
  if (!HoldsDevices(before)) {
    if (before == PartState::kExited && seen->drained) {
      TakeProgress(id, *seen);
      stepper_.EditPart(id, worker_).state = PartState::kDrained;
      stepper_.CheckGone(id, actor_);
    }
    return;
  }
  TakeProgress(id, *seen);
  TakeIsolation(id, seen->isolation);
  TakeRendezvous(id, *seen);
  PartState after = before;
  switch (seen->state) {
    case ObservedState::kStarting:
      // A state never goes backwards: a report may repeat, but a rank does not start twice.
      if (before == PartState::kAssigned) after = PartState::kStarting;
      break;
    case ObservedState::kRunning:
      if (before != PartState::kStopping) after = PartState::kRunning;
      break;
    case ObservedState::kStopping:
      after = PartState::kStopping;
      break;
    case ObservedState::kExited:
      PartExited(id, *seen);
      return;
  }
  if (after == before) return;
  stepper_.EditPart(id, worker_).state = after;
  stepper_.StepAttempt(id, attempt_fsm::RanksSeen{}, actor_);
  if (AllParts(yard_.ledger.attempt(id), PartState::kRunning)) {
    stepper_.StepAttempt(id, attempt_fsm::AllRanksRunning{}, actor_);
  }
}

void Reader::PartNotListed(AttemptId id) {
  const AttemptRecord& attempt = yard_.ledger.attempt(id);
  switch (FindPart(attempt, worker_)->state) {
    case PartState::kAssigned: {
      // The worker is ordered to run it in every answer. But a worker that has read the order to
      // stop and has nothing of the attempt will never start it.
      const Contact& contact = yard_.contacts.of(worker_);
      if (IsToldToStop(contact, attempt) && report_.desired_revision == contact.desired_revision) {
        AttemptPart& part = stepper_.EditPart(id, worker_);
        part.state = PartState::kDrained;
        part.outcome.kind = OutcomeKind::kStopped;
        yard_.changes.Touch(worker_);
        yard_.changes.plan_again = true;
        stepper_.CheckGone(id, actor_);
      }
      return;
    }
    case PartState::kStarting:
    case PartState::kRunning:
    case PartState::kStopping:
      stepper_.LosePart(worker_, id, "RUN_DIRECTORY_GONE",
                        absl::StrCat("worker ", worker_, " no longer has the run directory"));
      return;
    case PartState::kExited:  // removed, so drained
      stepper_.EditPart(id, worker_).state = PartState::kDrained;
      stepper_.CheckGone(id, actor_);
      return;
    case PartState::kDrained:
    case PartState::kLost:
      return;
  }
}

void Reader::PartExited(AttemptId id, const ObservedAttempt& seen) {
  // This is for a part that still holds its devices.
  Accounts::Charge(yard_.ledger, id, yard_.live.at(id), now_);
  AttemptPart& part = stepper_.EditPart(id, worker_);
  part.state = seen.drained ? PartState::kDrained : PartState::kExited;
  part.outcome = JudgeClaim(yard_.snapshot(), yard_.ledger.attempt(id),
                            CheckRefusal(id, Checked(seen.outcome)));
  const Outcome outcome = part.outcome;
  yard_.changes.plan_again = true;
  yard_.changes.Touch(worker_);
  switch (outcome.kind) {
    case OutcomeKind::kSucceeded:
      if (!yard_.ledger.worker(worker_).failed_jobs.empty()) {
        yard_.ledger.EditWorker(worker_).failed_jobs.clear();
      }
      break;
    case OutcomeKind::kFailed:
      if (!std::holds_alternative<attempt_fsm::Stopping>(yard_.ledger.attempt(id).state)) {
        stepper_.NoteFailure(worker_, id, outcome);
      }
      stepper_.StepAttempt(id, attempt_fsm::PartFailed{outcome.failure}, actor_);
      break;
    case OutcomeKind::kStopped:
    case OutcomeKind::kNone: {
      if (!outcome.failure.message.empty()) {
        yard_.ledger.AddEvent(now_.wall_us, AttemptName(id), "RANKS_KILLED", actor_,
                              outcome.failure.message);
      }
      // If no stop was requested, the supervisor had lost contact. The ranks are gone, so there is
      // nothing to fence off.
      const std::string& reason = outcome.failure.reason;
      const Failure lost{FailureClass::kLost, reason.empty() ? "STOPPED_UNASKED" : reason,
                         absl::StrCat("its ranks on worker ", worker_, " stopped unasked")};
      stepper_.StepAttempt(id, attempt_fsm::PartFailed{lost}, actor_);
      break;
    }
  }
  stepper_.CheckGone(id, actor_);
}

// The end of an attempt is written by programs of its owner too, who would have free retries for
// ever if a word were enough. A worker that refuses a user says so for itself.
Outcome Reader::CheckRefusal(AttemptId id, Outcome outcome) const {
  const std::string& user = yard_.ledger.job(id.job).submission->user;
  const bool is_refused = yard_.contacts.of(worker_).users.refused.contains(user);
  if (outcome.failure.reason == error::kOwnerRefused && !is_refused) {
    outcome.failure.reason = "START_FAILED";
  }
  return outcome;
}

void Reader::TakeProgress(AttemptId id, const ObservedAttempt& seen) {
  const AttemptRecord& attempt = yard_.ledger.attempt(id);
  // Only the worker of rank 0 reports progress.
  if (attempt.ranks.empty() || attempt.ranks.front().worker != worker_) return;
  if (seen.progress.has_value()) NoteStep(id, seen.progress->step);
  const JobRecord& job = yard_.ledger.job(id.job);
  MetricValues metrics = job.metrics;
  for (const auto& [name, value] : seen.metrics.values) metrics.values[name] = value;
  const Progress progress = seen.progress.value_or(job.progress);
  const std::string& data_digest = seen.data_digest.empty() ? job.data_digest : seen.data_digest;
  const std::string& model_digest =
      seen.model_digest.empty() ? job.model_digest : seen.model_digest;
  if (metrics == job.metrics && progress == job.progress && data_digest == job.data_digest &&
      model_digest == job.model_digest) {
    return;
  }
  // The text changes with what waits. The event says what waited first.
  const bool is_full = !progress.disk_full.empty();
  if (is_full == job.progress.disk_full.empty()) {
    yard_.ledger.AddEvent(now_.wall_us, AttemptName(id), is_full ? "DISK_FULL" : "DISK_FREE",
                          actor_, progress.disk_full);
  }
  JobRecord& edit = yard_.ledger.EditJob(id.job);
  edit.data_digest = data_digest;
  edit.model_digest = model_digest;
  edit.metrics = std::move(metrics);
  edit.progress = progress;
  LiveAttempt& live = yard_.live.at(id);
  stepper_.CountRunTime(id.job, live);
  live.end_by_speed_us = progress.eta_us > 0 ? now_.uptime_us + progress.eta_us : 0;
}

// The ranks of a gang are no better kept apart than those on its weakest host.
void Reader::TakeIsolation(AttemptId id, Isolation level) {
  const Isolation before = yard_.ledger.attempt(id).isolation;
  if (level == Isolation::kUnspecified || before == level) return;
  if (before != Isolation::kUnspecified && before < level) return;
  yard_.ledger.EditAttempt(id).isolation = level;
}

void Reader::NoteStep(AttemptId id, int64_t step) {
  yard_.live.at(id).step = step;
  // The worker has taken over no orders of this session yet, so it wrote this report before it
  // could read this server's request for a checkpoint.
  if (report_.desired_revision == 0) yard_.stops.NoteStepBeforeRequest(id, step);
}

}  // namespace

absl::Status TakeReport(YardState& state, const SyncReport& report, Now now) {
  const std::string* session = state.contacts.WorkerOf(report.session);
  if (session == nullptr) return error::UnknownSession(report.session);
  const std::string worker = *session;
  const bool is_active =
      std::holds_alternative<worker_fsm::Active>(state.ledger.worker(worker).state);
  // If an answer to an UNREACHABLE worker arrived, it would renew the lease of its ranks, while the
  // server already counts the time until they are lost.
  if (!is_active && !Contacts::ShowsHearing(state.contacts.of(worker), report)) {
    return error::UnknownSession(report.session);
  }
  state.contacts.NoteReport(worker, report, now);
  state.worker_timers.Set(worker, state.contacts.LeaseDeadline(worker));
  Stepper(state, now).StepWorker(worker, worker_fsm::Synced{}, ActorOf(worker), "");
  const Contact& contact = state.contacts.of(worker);
  // A newer report came first.
  if (contact.synced && report.sequence < contact.sequence) return absl::OkStatus();
  const bool begins_to_leave = report.leave_within_us > 0 && !contact.leaves;
  if (state.contacts.TakeReport(worker, report)) {
    state.changes.plan_again = true;
    state.changes.Touch(worker);
  }
  Reader reader(state, worker, report, now);
  reader.TakeHealth();
  reader.TakeAttempts();
  if (begins_to_leave) Stepper(state, now).Leave(worker, report.leave_within_us);
  return absl::OkStatus();
}

}  // namespace trainyard::core
