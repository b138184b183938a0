// Registration and reports of workers. Reports are absolute: repeating one changes nothing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {
namespace {

std::string ActorOf(const std::string& worker) {
  return absl::StrCat("worker:", worker);
}

// What a worker may judge for itself: anything else is only known to have failed.
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

}  // namespace

absl::StatusOr<Reply> Yard::Impl::Apply(const RegisterWorker& in, Now now) {
  if (in.worker.empty() || in.session.empty() || sessions_.count(in.session) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker '", in.worker, "' with session '", in.session,
                     "': a name and a session that was never used are needed"));
  }
  const auto known = snapshot().workers.find(in.worker);
  const bool is_new = known == snapshot().workers.end();
  WorkerRecord worker;
  if (!is_new) {
    worker = known->second;
    // Two hosts with one name, or a host that was installed anew: what the first one runs must be
    // over before the second takes its place.
    if (worker.uid != in.uid) {
      if (std::holds_alternative<worker_fsm::Active>(worker.state)) {
        return error::WorkerNameTaken(in.worker, "another worker of this name is active");
      }
      if (HasHoldingParts(in.worker)) {
        return error::WorkerNameTaken(
            in.worker, "another worker of this name is unreachable and may still run attempts");
      }
    }
  } else {
    worker.create_us = now.wall_us;
  }
  worker.name = in.worker;
  worker.uid = in.uid;
  worker.version = in.version;
  worker.hostname = in.hostname;
  worker.address = in.address;
  // What was set aside here stays so, whatever the worker thinks of it.
  std::vector<DeviceRecord> devices = in.devices;
  for (DeviceRecord& device : devices) {
    for (const DeviceRecord& before : worker.devices) {
      if (before.name == device.name) device.quarantine = before.quarantine;
    }
  }
  worker.devices = std::move(devices);
  worker.labels = in.labels;
  worker.last_seen_us = now.wall_us;
  ledger_.PutWorker(std::move(worker));

  Contact& contact = contacts_[in.worker];
  if (!contact.session.empty()) sessions_.erase(contact.session);
  contact = Contact{};
  contact.session = in.session;
  contact.last_seen_us = now.wall_us;
  contact.lease_deadline_us = now.uptime_us + config_.lease_us;
  sessions_[in.session] = in.worker;
  ledger_.AddEvent(now.wall_us, WorkerName(in.worker), "WORKER_REGISTERED", ActorOf(in.worker),
                   absl::StrCat("version ", in.version, ", ", in.devices.size(),
                                in.devices.size() == 1 ? " device" : " devices"));
  if (!is_new) StepWorker(in.worker, worker_fsm::Registered{}, ActorOf(in.worker), "", now);
  Touch(in.worker);
  plan_again_ = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const SyncReport& in, Now now) {
  const auto session = sessions_.find(in.session);
  if (session == sessions_.end()) return error::UnknownSession(in.session);
  const std::string name = session->second;
  Contact& contact = contacts_.at(name);
  contact.last_seen_us = now.wall_us;
  contact.lease_deadline_us = now.uptime_us + config_.lease_us;
  worker_timers_.Set(name, contact.lease_deadline_us);
  StepWorker(name, worker_fsm::Synced{}, ActorOf(name), "", now);
  if (contact.synced && in.sequence < contact.sequence) return Reply{};  // overtaken

  std::map<AttemptId, const ObservedAttempt*> seen;
  std::map<AttemptId, Observed> observed;
  for (const ObservedAttempt& attempt : in.attempts) {
    seen[attempt.attempt] = &attempt;
    observed[attempt.attempt] = {attempt.fencing_token, attempt.state};
  }
  if (!contact.synced || observed != contact.observed) {
    plan_again_ = true;
    Touch(name);
  }
  contact.synced = true;
  contact.sequence = in.sequence;
  contact.observed = std::move(observed);
  contact.usage = in.usage;
  TakeHealth(name, in.devices, now);

  const auto on = live_on_.find(name);
  if (on == live_on_.end()) return Reply{};
  const std::set<AttemptId> attempts = on->second;
  for (const AttemptId& id : attempts) {
    const auto found = seen.find(id);
    const bool current =
        found != seen.end() && found->second->fencing_token == ledger_.attempt(id).fencing_token;
    ReportPart(name, id, current ? found->second : nullptr, in.desired_revision, now);
  }
  return Reply{};
}

void Yard::Impl::TakeHealth(const std::string& worker, const std::vector<DeviceRecord>& devices,
                            Now now) {
  for (const DeviceRecord& reported : devices) {
    const WorkerRecord& record = ledger_.worker(worker);
    const auto found = std::find_if(
        record.devices.begin(), record.devices.end(),
        [&reported](const DeviceRecord& device) { return device.name == reported.name; });
    if (found == record.devices.end()) continue;
    if (found->health == reported.health && found->health_reason == reported.health_reason) {
      continue;
    }
    const auto index = found - record.devices.begin();
    DeviceRecord& device = ledger_.EditWorker(worker).devices[static_cast<size_t>(index)];
    device.health = reported.health;
    device.health_reason = reported.health_reason;
    ledger_.AddEvent(now.wall_us, WorkerName(worker), absl::StrCat("DEVICE_", Text(device.health)),
                     ActorOf(worker),
                     device.health_reason.empty()
                         ? device.name
                         : absl::StrCat(device.name, ": ", device.health_reason));
    Touch(worker);
    plan_again_ = true;
  }
}

std::map<std::string, DeviceUsage> Yard::Impl::UsageOn(const std::string& worker) const {
  const auto contact = contacts_.find(worker);
  const auto record = snapshot().workers.find(worker);
  // Old numbers of a host that is not heard of would only mislead.
  if (contact == contacts_.end() || record == snapshot().workers.end() ||
      !std::holds_alternative<worker_fsm::Active>(record->second.state)) {
    return {};
  }
  return contact->second.usage;
}

AttemptPart& Yard::Impl::EditPart(AttemptId id, const std::string& worker) {
  for (AttemptPart& part : ledger_.EditAttempt(id).parts) {
    if (part.worker == worker) return part;
  }
  CheckFailed(__FILE__, __LINE__, absl::StrCat(AttemptName(id), " has no part on ", worker));
}

// `seen` is null where the worker does not list the attempt, or lists it under a stale token.
void Yard::Impl::ReportPart(const std::string& worker, AttemptId id, const ObservedAttempt* seen,
                            int64_t desired_revision, Now now) {
  const PartState before = FindPart(ledger_.attempt(id), worker)->state;
  if (seen == nullptr) {
    PartNotListed(worker, id, desired_revision, now);
    return;
  }
  if (!HoldsDevices(before)) {
    if (before == PartState::kExited && seen->drained) {
      TakeProgress(worker, id, *seen, now);
      EditPart(id, worker).state = PartState::kDrained;
      CheckGone(id, ActorOf(worker), now);
    }
    return;
  }
  TakeProgress(worker, id, *seen, now);
  auto& rendezvous = live_.at(id).rendezvous[worker];
  if (!seen->rendezvous.empty() && rendezvous != seen->rendezvous) {
    rendezvous = seen->rendezvous;
    TouchWorkersOf(ledger_.attempt(id));
  }
  PartState after = before;
  switch (seen->state) {
    case ObservedState::kStarting:
      // Never backwards: a report may repeat, a rank does not start twice.
      if (before == PartState::kAssigned) after = PartState::kStarting;
      break;
    case ObservedState::kRunning:
      if (before != PartState::kStopping) after = PartState::kRunning;
      break;
    case ObservedState::kStopping:
      after = PartState::kStopping;
      break;
    case ObservedState::kExited:
      PartExited(worker, id, *seen, now);
      return;
  }
  if (after == before) return;
  EditPart(id, worker).state = after;
  StepAttempt(id, attempt_fsm::RanksSeen{}, ActorOf(worker), now);
  if (AllParts(ledger_.attempt(id), PartState::kRunning)) {
    StepAttempt(id, attempt_fsm::AllRanksRunning{}, ActorOf(worker), now);
  }
}

void Yard::Impl::PartNotListed(const std::string& worker, AttemptId id, int64_t desired_revision,
                               Now now) {
  switch (FindPart(ledger_.attempt(id), worker)->state) {
    case PartState::kAssigned: {
      // It is told to run, again and again. But a worker that has read the order to stop and
      // has nothing of the attempt will never start it.
      const Contact& contact = contacts_.at(worker);
      const int64_t token = ledger_.attempt(id).fencing_token;
      const bool told_to_stop = std::any_of(
          contact.desired.begin(), contact.desired.end(), [&](const DesiredAttempt& desired) {
            return desired.attempt == id && desired.fencing_token == token &&
                   desired.action == DesiredAction::kStop;
          });
      if (told_to_stop && desired_revision == contact.desired_revision) {
        AttemptPart& part = EditPart(id, worker);
        part.state = PartState::kDrained;
        part.outcome.kind = OutcomeKind::kStopped;
        Touch(worker);
        plan_again_ = true;
        CheckGone(id, ActorOf(worker), now);
      }
      return;
    }
    case PartState::kStarting:
    case PartState::kRunning:
    case PartState::kStopping:
      LosePart(worker, id, "RUN_DIRECTORY_GONE",
               absl::StrCat("worker ", worker, " no longer has the run directory"), now);
      return;
    case PartState::kExited:  // removed, so drained
      EditPart(id, worker).state = PartState::kDrained;
      CheckGone(id, ActorOf(worker), now);
      return;
    case PartState::kDrained:
    case PartState::kLost:
      return;
  }
}

void Yard::Impl::PartExited(const std::string& worker, AttemptId id, const ObservedAttempt& seen,
                            Now now) {
  Charge(id, live_.at(id), now);  // while it still holds its devices
  AttemptPart& part = EditPart(id, worker);
  part.state = seen.drained ? PartState::kDrained : PartState::kExited;
  part.outcome = Checked(seen.outcome);
  const Outcome outcome = part.outcome;
  plan_again_ = true;
  Touch(worker);
  switch (outcome.kind) {
    case OutcomeKind::kSucceeded:
      if (!ledger_.worker(worker).failed_jobs.empty()) {
        ledger_.EditWorker(worker).failed_jobs.clear();
      }
      break;
    case OutcomeKind::kFailed:
      if (!std::holds_alternative<attempt_fsm::Stopping>(ledger_.attempt(id).state)) {
        NoteFailure(worker, id, outcome, now);
      }
      StepAttempt(id, attempt_fsm::PartFailed{outcome.failure}, ActorOf(worker), now);
      break;
    case OutcomeKind::kStopped:
    case OutcomeKind::kNone:
      // Where nobody asked for the stop, the supervisor had lost contact. The ranks are gone, so
      // there is nothing to fence.
      StepAttempt(id,
                  attempt_fsm::PartFailed{
                      {FailureClass::kLost,
                       outcome.failure.reason.empty() ? "STOPPED_UNASKED" : outcome.failure.reason,
                       absl::StrCat("its ranks on worker ", worker, " stopped unasked")}},
                  ActorOf(worker), now);
      break;
  }
  CheckGone(id, ActorOf(worker), now);
}

void Yard::Impl::TakeProgress(const std::string& worker, AttemptId id, const ObservedAttempt& seen,
                              Now now) {
  const AttemptRecord& attempt = ledger_.attempt(id);
  if (attempt.ranks.empty() || attempt.ranks.front().worker != worker) return;  // rank 0 reports
  const JobRecord& job = ledger_.job(id.job);
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
  JobRecord& edit = ledger_.EditJob(id.job);
  edit.data_digest = data_digest;
  edit.model_digest = model_digest;
  edit.metrics = std::move(metrics);
  edit.progress = progress;
  LiveAttempt& live = live_.at(id);
  CountRunTime(id.job, live, now);
  live.end_by_speed_us = progress.eta_us > 0 ? now.uptime_us + progress.eta_us : 0;
}

void Yard::Impl::LosePart(const std::string& worker, AttemptId id, std::string reason,
                          std::string message, Now now) {
  Charge(id, live_.at(id), now);
  EditPart(id, worker).state = PartState::kLost;
  plan_again_ = true;
  Touch(worker);
  StepAttempt(id,
              attempt_fsm::PartFailed{{FailureClass::kLost, std::move(reason), std::move(message)}},
              "server", now);
  CheckGone(id, "server", now);
}

// Ends the attempt once nothing more of it can come. Once only streams are missing, their time
// runs.
void Yard::Impl::CheckGone(AttemptId id, absl::string_view actor, Now now) {
  bool succeeded = true;
  bool drained = true;
  for (const AttemptPart& part : ledger_.attempt(id).parts) {
    if (HoldsDevices(part.state)) return;
    drained = drained && part.state != PartState::kExited;
    succeeded = succeeded && part.outcome.kind == OutcomeKind::kSucceeded;
  }
  if (drained) {
    StepAttempt(id, attempt_fsm::AllGone{succeeded}, actor, now);
  } else if (LiveAttempt& live = live_.at(id); !live.drain_deadline_us.has_value()) {
    live.drain_deadline_us = now.uptime_us + config_.drain_limit_us;
  }
}

}  // namespace trainyard::core
