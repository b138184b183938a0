// Steps the two machines of workers, and sets devices and workers aside.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

bool HasRank(const AttemptRecord& attempt, int32_t rank, const std::string& worker) {
  return std::any_of(attempt.ranks.begin(), attempt.ranks.end(), [&](const RankPlacement& placed) {
    return placed.rank == rank && placed.worker == worker;
  });
}

}  // namespace

void Stepper::StepWorker(const std::string& name, const worker_fsm::Input& input,
                         absl::string_view actor, std::string message) {
  worker_fsm::Result result = worker_fsm::Step(yard_.ledger.worker(name).state, input);
  TY_CHECK(!std::holds_alternative<Refused>(result));
  auto* transition = std::get_if<Transition<WorkerState, worker_fsm::Effect>>(&result);
  if (transition == nullptr) return;  // ignored
  yard_.changes.Touch(name);
  for (const AttemptId& id : yard_.live.On(name)) yard_.changes.contacts.insert(id.job);
  WorkerRecord& worker = yard_.ledger.EditWorker(name);
  worker.state = transition->next;
  worker.last_seen_us = yard_.contacts.of(name).last_seen_wall_us;
  AddEvent(WorkerName(name), absl::StrCat("WORKER_", worker_fsm::Name(worker.state)), actor,
           std::move(message));
  for (const worker_fsm::Effect& effect : transition->effects) {
    if (std::holds_alternative<worker_fsm::PlanAgain>(effect)) {
      yard_.changes.plan_again = true;
    } else {
      yard_.contacts.Close(name);
    }
  }
}

absl::Status Stepper::StepScheduling(const std::string& name,
                                     const worker_fsm::SchedulingInput& input,
                                     absl::string_view actor, std::string message) {
  if (yard_.snapshot().workers.count(name) == 0) return error::WorkerNotFound(WorkerName(name));
  auto result = worker_fsm::Step(worker_fsm::ToState(yard_.ledger.worker(name).scheduling), input);
  using Change = Transition<worker_fsm::SchedulingState, worker_fsm::SchedulingEffect>;
  auto* transition = std::get_if<Change>(&result);
  if (transition == nullptr) return absl::OkStatus();  // ignored: it is so already
  WorkerRecord& worker = yard_.ledger.EditWorker(name);
  worker.scheduling = worker_fsm::FromState(transition->next);
  AddEvent(WorkerName(name), absl::StrCat("WORKER_", Text(worker.scheduling)), actor,
           std::move(message));
  yard_.changes.Touch(name);
  yard_.changes.plan_again = true;
  return absl::OkStatus();
}

absl::Status Stepper::Drain(const DrainWorker& in) {
  TY_RETURN_IF_ERROR(StepScheduling(in.worker, worker_fsm::Drain{}, in.actor, in.reason));
  DrainAttempts(in.worker, in.within_us, in.actor);
  return absl::OkStatus();
}

void Stepper::Leave(const std::string& worker, int64_t within_us) {
  AddEvent(WorkerName(worker), "WORKER_LEAVING", ActorOf(worker),
           "its daemon was told to end, and lets its jobs go on elsewhere");
  DrainAttempts(worker, within_us, ActorOf(worker));
  yard_.changes.Touch(worker);
  yard_.changes.plan_again = true;
}

absl::Status Stepper::Quarantine(const QuarantineDevice& in) {
  const auto worker = yard_.snapshot().workers.find(in.worker);
  if (worker == yard_.snapshot().workers.end()) return error::WorkerNotFound(WorkerName(in.worker));
  for (DeviceRecord& device : yard_.ledger.EditWorker(in.worker).devices) {
    if (device.name != in.device) continue;
    device.quarantine = in.reason.empty() ? absl::StrCat("by ", in.actor) : in.reason;
    AddEvent(WorkerName(in.worker), "DEVICE_QUARANTINED", in.actor,
             absl::StrCat(device.name, ": ", device.quarantine));
    yard_.changes.Touch(in.worker);
    yard_.changes.plan_again = true;
    return absl::OkStatus();
  }
  return error::DeviceNotFound(in.worker, in.device);
}

void Stepper::NoteFailure(const std::string& worker, AttemptId id, const Outcome& outcome) {
  const Failure& failure = outcome.failure;
  const AttemptRecord& attempt = yard_.ledger.attempt(id);
  // If a rank lost a peer or waited for one in vain, the failure lies with another worker; if the
  // checkpoint is damaged, with the server. A worker that refuses a user serves others well.
  if (failure.failure_class == FailureClass::kUserError || failure.reason == "PEER_LOST" ||
      failure.reason == error::kCheckpointDamaged || failure.reason == error::kOwnerRefused ||
      (failure.reason == "RANK_STUCK" && !HasRank(attempt, outcome.failed_rank, worker))) {
    return;
  }
  if (failure.failure_class == FailureClass::kHardware) {
    for (const RankPlacement& rank : attempt.ranks) {
      if (rank.rank != outcome.failed_rank || rank.worker != worker) continue;
      const std::string& why = failure.message.empty() ? failure.reason : failure.message;
      Quarantine({worker, rank.device, "server", absl::StrCat(why, " (", AttemptName(id), ")")})
          .IgnoreError();  // the device may have disappeared from the worker since
    }
    return;
  }
  std::vector<JobId>& failed = yard_.ledger.EditWorker(worker).failed_jobs;
  if (std::find(failed.begin(), failed.end(), id.job) == failed.end()) failed.push_back(id.job);
  if (static_cast<int32_t>(failed.size()) < yard_.config.worker_failures_max) return;
  std::string jobs;
  for (const JobId& job : failed) absl::StrAppend(&jobs, jobs.empty() ? "" : ", ", JobName(job));
  failed.clear();
  TY_CHECK_OK(
      Drain({worker, "server", absl::StrCat("different jobs failed there in a row: ", jobs), 0}));
}

}  // namespace trainyard::core
