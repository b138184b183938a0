// Takes each kind of input. An input that is refused has changed nothing.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/core/yard/admission.h"
#include "server/core/yard/damage.h"
#include "server/core/yard/reports.h"
#include "server/core/yard/stepper.h"
#include "server/core/yard/timers.h"
#include "server/core/yard/yard.h"

namespace trainyard::core {
namespace {

absl::Status CheckReferences(const Snapshot& snapshot, const Submission& submission) {
  for (const CheckpointRef& start : submission.NeededCheckpoints()) {
    if (snapshot.checkpoints.count(start) == 0) {
      return error::CheckpointNotFound(CheckpointName(start.job, start.step));
    }
    TY_RETURN_IF_ERROR(CheckStart(snapshot, start));
  }
  for (const Dependency& dependency : submission.dependencies) {
    if (snapshot.jobs.count(dependency.job) == 0) {
      return error::JobNotFound(JobName(dependency.job));
    }
  }
  // The original may have been deleted, with its submission, since the client copied its spec.
  if (submission.cloned_from != JobId{} &&
      FindSubmission(snapshot, submission.cloned_from).submission == nullptr) {
    return error::JobNotFound(JobName(submission.cloned_from));
  }
  return absl::OkStatus();
}

// The name may belong to two hosts, or to one that was reinstalled. What the first one runs must
// have ended before the second takes its place.
absl::Status CheckName(const YardState& state, const RegisterWorker& in) {
  const auto known = state.snapshot().workers.find(in.worker);
  if (known == state.snapshot().workers.end() || known->second.uid == in.uid) {
    return absl::OkStatus();
  }
  if (std::holds_alternative<worker_fsm::Active>(known->second.state)) {
    return error::WorkerNameTaken(in.worker, "another worker of this name is active");
  }
  if (HasHoldingParts(state, in.worker)) {
    return error::WorkerNameTaken(
        in.worker, "another worker of this name is unreachable and may still run attempts");
  }
  return absl::OkStatus();
}

// Devices that were set aside here stay so, whatever the worker reports about them.
std::vector<DeviceRecord> WithQuarantines(std::vector<DeviceRecord> devices,
                                          const std::vector<DeviceRecord>& known) {
  for (DeviceRecord& device : devices) {
    for (const DeviceRecord& before : known) {
      if (before.name == device.name) device.quarantine = before.quarantine;
    }
  }
  return devices;
}

}  // namespace

// The inputs about jobs.

absl::StatusOr<std::vector<std::string>> Yard::Admit(const Submission& submission, Now now) const {
  if (submission.demand.count < 1 || submission.checkpoints_kept < 1) {
    return absl::InvalidArgumentError("a job needs at least one device and one kept checkpoint");
  }
  TY_RETURN_IF_ERROR(CheckReferences(snapshot(), submission));
  TY_RETURN_IF_ERROR(state_.accounts.CheckSubmission(snapshot().quotas, submission, now));
  const absl::Status can_run = CheckCanRun(state_, submission);
  if (!can_run.ok() && !submission.wait_for_devices) return can_run;
  std::vector<std::string> warnings = state_.accounts.WarningsOf(snapshot().quotas, submission);
  if (!can_run.ok()) {
    warnings.emplace_back("it waits for devices that no known worker has");
  } else if (snapshot().workers.empty()) {
    warnings.emplace_back(
        "no worker has ever joined this server, so nobody knows yet if the job can run");
  }
  const QueuedJob preview = PreviewJob(state_, submission, now);
  if (preview.release.never_comes) warnings.push_back(absl::StrJoin(preview.holds, "; "));
  return warnings;
}

absl::StatusOr<Reply> Yard::Take(const SubmitJob& in, Now now) {
  TY_CHECK(in.submission != nullptr);
  const Submission& submission = *in.submission;
  if (!in.request_id.empty()) {
    const auto known = snapshot().requests.find(in.request_id);
    if (known != snapshot().requests.end()) {
      if (known->second.request_hash != in.request_hash) {
        return error::RequestIdReused(in.request_id);
      }
      return Reply{known->second.job, /*existed=*/true};
    }
  }
  TY_ASSIGN_OR_RETURN(std::vector<std::string> warnings, Admit(submission, now));
  state_.accounts.ChargeSubmission(snapshot().quotas, submission, now);
  const int32_t jobs = std::max(submission.array_size, 1);
  for (const CheckpointRef& start : submission.NeededCheckpoints()) state_.parents[start] += jobs;
  const JobId first{snapshot().next_job};
  for (int32_t i = 0; i < jobs; ++i) {
    JobRecord job;
    job.submission = in.submission;
    job.create_us = now.wall_us;
    if (submission.array_size > 0) job.array = first;
    Stepper(state_, now).EnterQueue(state_.ledger.AddJob(std::move(job)));
  }
  if (!in.request_id.empty() && snapshot().requests.count(in.request_id) == 0) {
    state_.ledger.AddRequest({in.request_id, in.request_hash, first, now.wall_us});
  }
  // One event is for the whole array.
  state_.ledger.AddEvent(now.wall_us, JobName(first), "JOB_QUEUED", in.actor,
                         submission.array_size == 0
                             ? "submitted"
                             : absl::StrCat("submitted as an array of ", jobs, ", up to ",
                                            JobName(JobId{first.value + jobs - 1})));
  state_.lineage.Add(first, submission);
  state_.changes.has_new_jobs = true;
  return Reply{first, /*existed=*/false, std::move(warnings)};
}

absl::StatusOr<Reply> Yard::Take(const DeleteJob& in, Now now) {
  TY_RETURN_IF_ERROR(Delete(state_, in, now));
  return Reply{in.job, false};
}

absl::StatusOr<Reply> Yard::Take(const NoteStreams& in, Now) {
  for (auto [id, bytes] : in.bytes) {
    const JobRecord* job = FindJob(id);
    if (job == nullptr) continue;
    // They may have been measured before they were deleted.
    if (job->logs_deleted) bytes.logs = 0;
    if (job->metrics_deleted) bytes.metrics = 0;
    const StreamBytes* known = FindStreams(id);
    if (known != nullptr && *known == bytes) continue;
    state_.accounts.NoteStreams(*job->submission, id, bytes);
    turn_.streams_changed.insert(id);
  }
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const SkipJobNumbers& in, Now now) {
  Stepper(state_, now).SkipJobNumbers(in.last);
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const CancelJob& in, Now now) {
  TY_RETURN_IF_ERROR(Stepper(state_, now).StepJob(in.job, job_fsm::Cancel{}, in.actor, in.reason));
  return Reply{in.job, false};
}

absl::StatusOr<Reply> Yard::Take(const SuspendJob& in, Now now) {
  TY_RETURN_IF_ERROR(Stepper(state_, now).StepJob(in.job, job_fsm::Suspend{}, in.actor, in.reason));
  return Reply{in.job, false};
}

absl::StatusOr<Reply> Yard::Take(const ResumeJob& in, Now now) {
  TY_RETURN_IF_ERROR(Stepper(state_, now).StepJob(in.job, job_fsm::Resume{}, in.actor, "resumed"));
  return Reply{in.job, false};
}

// The inputs from workers.

absl::StatusOr<Reply> Yard::Take(const RegisterWorker& in, Now now) {
  if (in.worker.empty() || in.session.empty() || state_.contacts.WorkerOf(in.session) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker '", in.worker, "' with session '", in.session,
                     "': a name and a session that was never used are needed"));
  }
  TY_RETURN_IF_ERROR(CheckName(state_, in));
  const WorkerRecord* known = FindWorker(in.worker);
  const bool is_new = known == nullptr;
  WorkerRecord worker = is_new ? WorkerRecord{} : *known;
  if (is_new) worker.create_us = now.wall_us;
  worker.name = in.worker;
  worker.uid = in.uid;
  worker.version = in.version;
  worker.hostname = in.hostname;
  worker.address = in.address;
  worker.devices = WithQuarantines(in.devices, worker.devices);
  worker.labels = in.labels;
  worker.host = in.host;
  worker.last_seen_us = now.wall_us;
  state_.ledger.PutWorker(std::move(worker));

  state_.contacts.Open(in.worker, in.session, now);
  state_.contacts.SetOnlyUser(in.worker, in.run_as_user);
  state_.ledger.AddEvent(now.wall_us, WorkerName(in.worker), "WORKER_REGISTERED",
                         ActorOf(in.worker),
                         absl::StrCat("version ", in.version, ", ", in.devices.size(),
                                      in.devices.size() == 1 ? " device" : " devices"));
  state_.changes.Touch(in.worker);
  state_.changes.plan_again = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const SyncReport& in, Now now) {
  TY_RETURN_IF_ERROR(TakeReport(state_, in, now));
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const CommitCheckpoint& in, Now now) {
  TY_RETURN_IF_ERROR(CheckCheckpointWriter(in.session, in.attempt, in.fencing_token));
  const CheckpointRef id{in.attempt.job, in.step};
  const CheckpointRecord* known = FindCheckpoint(id);
  // A call is repeated if its answer was lost. Later attempts have outputs of their own.
  const bool is_same = known != nullptr && known->is_whole() &&
                       (!id.is_outputs() || known->attempt == in.attempt.number);
  if (is_same) return Reply{id.job, /*existed=*/true};
  if (!in.left_out.empty()) {
    state_.ledger.AddEvent(now.wall_us, JobName(id.job), "OUTPUTS_LEFT_OUT",
                           ActorOf(*WorkerOfSession(in.session)), in.left_out);
  }
  if (id.is_outputs() && in.files.empty()) return Reply{id.job, /*existed=*/false};
  CheckpointRecord checkpoint;
  checkpoint.id = id;
  checkpoint.attempt = in.attempt.number;
  checkpoint.files = in.files;
  std::sort(checkpoint.files.begin(), checkpoint.files.end(),
            [](const CheckpointFile& a, const CheckpointFile& b) { return a.name < b.name; });
  checkpoint.create_us = now.wall_us;
  checkpoint.evaluation = in.evaluation;
  Stepper stepper(state_, now);
  if (known != nullptr) {
    stepper.CountStored(*known, -1);
    state_.ledger.DeleteCheckpoint(id);
  }
  stepper.AddCheckpoint(std::move(checkpoint), ActorOf(*WorkerOfSession(in.session)));
  LiveAttempt* live = id.is_outputs() ? nullptr : state_.live.Find(in.attempt);
  if (live != nullptr) {
    live->safe_since_us = now.uptime_us;
    if (state_.stops.IsAnsweredBy(in.attempt, in.step)) stepper.FireStop(in.attempt, "scheduler");
  }
  return Reply{id.job, /*existed=*/false};
}

absl::StatusOr<Reply> Yard::Take(const JudgeCheckpoint& in, Now now) {
  const CheckpointRef& id = in.seen.id;
  const CheckpointRecord* known = FindCheckpoint(id);
  if (known == nullptr) return error::CheckpointNotFound(CheckpointName(id.job, id.step));
  // A copy of the checkpoint changes nothing about its files.
  CheckpointRecord seen = in.seen;
  seen.copy = known->copy;
  seen.copy_failure = known->copy_failure;
  if (*known == seen && known->damage != in.damage) {
    Stepper(state_, now).SetDamage(id, in.damage);
  }
  return Reply{id.job, /*existed=*/false};
}

absl::StatusOr<Reply> Yard::Take(const NoteCheckpointCopy& in, Now) {
  const CheckpointRef& id = in.seen.id;
  const CheckpointRecord* known = FindCheckpoint(id);
  if (known == nullptr) return error::CheckpointNotFound(CheckpointName(id.job, id.step));
  const bool is_same = known->create_us == in.seen.create_us && known->files == in.seen.files;
  if (is_same && (known->copy != in.copy || known->copy_failure != in.failure)) {
    CheckpointRecord& checkpoint = state_.ledger.EditCheckpoint(id);
    checkpoint.copy = in.copy;
    checkpoint.copy_failure = in.failure;
  }
  return Reply{id.job, /*existed=*/false};
}

absl::StatusOr<Reply> Yard::Take(const NoteLostMetrics& in, Now now) {
  if (snapshot().jobs.count(in.job) == 0) return error::JobNotFound(JobName(in.job));
  state_.ledger.AddEvent(now.wall_us, JobName(in.job), "METRICS_LOST", "server", in.message);
  return Reply{in.job, /*existed=*/false};
}

// The inputs about workers.

absl::StatusOr<Reply> Yard::Take(const CordonWorker& in, Now now) {
  TY_RETURN_IF_ERROR(
      Stepper(state_, now).StepScheduling(in.worker, worker_fsm::Cordon{}, in.actor, in.reason));
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const UncordonWorker& in, Now now) {
  TY_RETURN_IF_ERROR(
      Stepper(state_, now).StepScheduling(in.worker, worker_fsm::Uncordon{}, in.actor, ""));
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const DrainWorker& in, Now now) {
  TY_RETURN_IF_ERROR(Stepper(state_, now).Drain(in));
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const DeclareWorkerLost& in, Now now) {
  const WorkerRecord* worker = FindWorker(in.worker);
  if (worker == nullptr) return error::WorkerNotFound(WorkerName(in.worker));
  if (std::holds_alternative<worker_fsm::Active>(worker->state)) {
    return error::WorkerNotUnreachable(WorkerName(in.worker));
  }
  if (std::holds_alternative<worker_fsm::Gone>(worker->state)) return Reply{};
  const std::string message =
      absl::StrCat("declared lost", in.reason.empty() ? "" : ": ", in.reason);
  Stepper stepper(state_, now);
  stepper.LoseParts(in.worker, message, [](JobId) { return true; });
  stepper.StepWorker(in.worker, worker_fsm::GaveUp{now.wall_us}, in.actor, message);
  return Reply{};
}

absl::Status Yard::CheckDeletion(const std::string& name) const {
  const WorkerRecord* worker = FindWorker(name);
  if (worker == nullptr) return error::WorkerNotFound(WorkerName(name));
  if (std::holds_alternative<worker_fsm::Active>(worker->state)) {
    return error::WorkerNotUnreachable(WorkerName(name));
  }
  const std::set<AttemptId>& attempts = state_.live.On(name);
  if (attempts.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker '", WorkerName(name), "' cannot be removed: ", AttemptName(*attempts.begin()),
      " may still run there; if its host is off, `trainyard workers lost ", name,
      "` lets the job start elsewhere"));
}

absl::StatusOr<Reply> Yard::Take(const DeleteWorker& in, Now now) {
  TY_RETURN_IF_ERROR(CheckDeletion(in.worker));
  state_.ledger.AddEvent(now.wall_us, WorkerName(in.worker), "WORKER_DELETED", in.actor, in.reason);
  state_.ledger.DeleteWorker(in.worker);
  state_.contacts.Forget(in.worker);
  state_.worker_timers.Set(in.worker, std::nullopt);
  state_.changes.touched_workers.erase(in.worker);
  state_.changes.workers.insert(in.worker);  // the pool loses it
  state_.changes.plan_again = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const QuarantineDevice& in, Now now) {
  TY_RETURN_IF_ERROR(Stepper(state_, now).Quarantine(in));
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const ReleaseDevice& in, Now now) {
  if (FindWorker(in.worker) == nullptr) return error::WorkerNotFound(WorkerName(in.worker));
  for (DeviceRecord& device : state_.ledger.EditWorker(in.worker).devices) {
    if (device.name != in.device) continue;
    if (device.quarantine.empty()) return Reply{};
    device.quarantine.clear();
    state_.ledger.AddEvent(now.wall_us, WorkerName(in.worker), "DEVICE_RELEASED", in.actor,
                           device.name);
    state_.changes.Touch(in.worker);
    state_.changes.plan_again = true;
    return Reply{};
  }
  return error::DeviceNotFound(in.worker, in.device);
}

// The inputs about the rules of sharing.

absl::StatusOr<Reply> Yard::Take(const SetQuota& in, Now now) {
  state_.ledger.PutQuota(in.quota);
  state_.ledger.AddEvent(now.wall_us, absl::StrCat("quotas/", in.quota.subject), "QUOTA_SET",
                         in.actor, "");
  state_.changes.plan_again = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const DeleteQuota& in, Now now) {
  if (snapshot().quotas.count(in.subject) == 0) return Reply{};
  state_.ledger.DeleteQuota(in.subject);
  state_.ledger.AddEvent(now.wall_us, absl::StrCat("quotas/", in.subject), "QUOTA_DELETED",
                         in.actor, "");
  state_.changes.plan_again = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const CreateReservation& in, Now now) {
  picture_.RefreshPool(state_);  // free devices come first if the input names none
  ReservationRecord made;
  TY_RETURN_IF_ERROR(ResolveReservation(snapshot(), picture_.pool(), in, now, made));
  state_.ledger.AddEvent(now.wall_us, absl::StrCat("reservations/", made.name),
                         "RESERVATION_CREATED", made.actor,
                         absl::StrCat(made.devices.size(), " devices"));
  state_.ledger.PutReservation(std::move(made));
  state_.reservations.NoteChange(now);
  state_.changes.plan_again = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const DeleteReservation& in, Now now) {
  if (snapshot().reservations.count(in.name) == 0) return error::ReservationNotFound(in.name);
  state_.ledger.DeleteReservation(in.name);
  state_.ledger.AddEvent(now.wall_us, absl::StrCat("reservations/", in.name), "RESERVATION_DELETED",
                         in.actor, "");
  state_.reservations.NoteChange(now);
  state_.changes.plan_again = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Take(const SetPossibleWorkers& in, Now) {
  state_.possible = in.workers;
  for (const PossibleWorkers& possible : in.workers) {
    if (!possible.user.empty()) state_.contacts.Name(possible.user);
  }
  state_.changes.plan_again = true;
  return Reply{};
}

}  // namespace trainyard::core
