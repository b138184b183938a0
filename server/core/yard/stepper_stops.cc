// Handles stops that wait for a checkpoint. Preemption, drain, growth and reservations share them.
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

job_fsm::Input StopInput(StopReason reason, std::string detail) {
  switch (reason) {
    case StopReason::kPreempt:
      return job_fsm::Preempt{std::move(detail)};
    case StopReason::kResize:
      return job_fsm::Resize{std::move(detail)};
    default:
      return job_fsm::Drain{std::move(detail)};
  }
}

}  // namespace

void Stepper::AskForCheckpoint(AttemptId id) {
  ++yard_.live.at(id).checkpoint_request;
  TouchWorkersOf(yard_.ledger.attempt(id));
}

void Stepper::RequestStop(AttemptId id, PendingStop stop, absl::string_view actor) {
  const JobState& state = yard_.ledger.job(id.job).state;
  if (std::holds_alternative<job_fsm::Stopping>(state)) return;
  if (yard_.stops.Find(id) != nullptr) {
    // A stop with a claimant is withdrawn if the claimant gives up, but this stop has to stay.
    if (stop.claimant != JobId{} || !yard_.stops.Replace(id, std::move(stop))) return;
    DropClaims(id.job);
    TouchWorkersOf(yard_.ledger.attempt(id));
    return;
  }
  const bool runs = std::holds_alternative<job_fsm::Running>(state);
  if (runs) {
    AddEvent(JobName(id.job), "CHECKPOINT_REQUESTED", actor, stop.detail);
    AskForCheckpoint(id);
  }
  stop.asked_at_step = yard_.live.at(id).step;
  yard_.stops.Ask(id, std::move(stop));
  if (!runs) FireStop(id, actor);
}

void Stepper::FireStop(AttemptId id, absl::string_view actor) {
  // It stops already.
  if (std::holds_alternative<job_fsm::Stopping>(yard_.ledger.job(id.job).state)) return;
  const PendingStop& stop = *yard_.stops.Find(id);
  if (stop.claimant != JobId{}) {
    yard_.stops.NoteRoomMade(stop.claimant);
    yard_.changes.jobs.insert(stop.claimant);
  }
  if (stop.reason == StopReason::kPreempt) ++yard_.ledger.EditJob(id.job).preemptions;
  TY_CHECK_OK(StepJob(id.job, StopInput(stop.reason, stop.detail), actor, ""));
}

void Stepper::DrainAttempts(const std::string& worker, int64_t within_us, absl::string_view actor) {
  const std::set<AttemptId> attempts = yard_.live.On(worker);
  const int64_t wait_us = within_us > 0 ? within_us : yard_.config.checkpoint_wait_us;
  for (const AttemptId& id : attempts) {
    PendingStop stop;
    stop.reason = StopReason::kDrain;
    stop.detail = absl::StrCat("worker ", worker, " is being drained");
    stop.deadline_us = now_.uptime_us + wait_us;
    RequestStop(id, std::move(stop), actor);
  }
}

void Stepper::Claim(JobId job, const std::vector<DeviceKey>& devices) {
  yard_.stops.Claim(job, devices);
  for (const DeviceKey& device : devices) yard_.changes.workers.insert(device.first);
}

void Stepper::DropClaims(JobId job) {
  std::set<std::string> workers = yard_.stops.DropClaims(job);
  if (workers.empty()) return;
  yard_.changes.jobs.insert(job);
  yard_.changes.workers.merge(workers);
  yard_.changes.plan_again = true;
}

bool Stepper::Withdraw(JobId claimant) {
  std::set<std::string> workers = yard_.stops.DropClaims(claimant);
  bool gave_up = !workers.empty();
  if (gave_up) yard_.changes.jobs.insert(claimant);
  yard_.changes.workers.merge(workers);
  yard_.changes.plan_again |= gave_up;
  for (const AttemptId& id : yard_.stops.StopsFor(claimant)) {
    if (std::holds_alternative<job_fsm::Stopping>(yard_.ledger.job(id.job).state)) continue;
    yard_.stops.Remove(id);
    // Its timers are computed again, and it may be chosen again.
    TouchWorkersOf(yard_.ledger.attempt(id));
    DropClaims(id.job);
    AddEvent(JobName(id.job), "STOP_WITHDRAWN", "scheduler",
             absl::StrCat(JobName(claimant), " no longer needs its devices"));
    gave_up = true;
  }
  return gave_up;
}

bool Stepper::WithdrawIdleClaims() {
  if (!yard_.stops.has_claims()) return false;
  // An attempt that stops for any other reason frees its devices too.
  std::vector<DeviceKey> coming;
  std::set<std::string> workers;
  for (const auto& [id, live] : yard_.live.all()) {
    const AttemptRecord& attempt = yard_.ledger.attempt(id);
    if (!std::holds_alternative<attempt_fsm::Stopping>(attempt.state)) continue;
    for (const RankPlacement& rank : attempt.ranks) {
      coming.emplace_back(rank.worker, rank.device);
      workers.insert(rank.worker);
    }
  }
  // It may be for the processors and the memory of a host that a job waits, and not for a device.
  for (const auto& [device, job] : yard_.stops.claims()) {
    const Demand demand = DemandOf(yard_.ledger.job(job));
    const bool is_for_host = demand.is_deviceless || !demand.resources.empty();
    if (is_for_host && workers.count(device.first) > 0) coming.push_back(device);
  }
  const std::set<JobId> idle = yard_.stops.IdleClaimants(coming);
  for (const JobId& job : idle) Withdraw(job);
  return !idle.empty();
}

}  // namespace trainyard::core
