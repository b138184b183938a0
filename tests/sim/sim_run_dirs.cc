// Does on a simulated machine what worker/agent/file_run_dirs.cc does with files and processes.
#include "tests/sim/sim_run_dirs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::sim {

std::vector<agent::Attempt> SimRunDirs::Adopt() {
  std::vector<agent::Attempt> found;
  for (const auto& [id, dir] : machine_.directories) {
    agent::Attempt& attempt = found.emplace_back();
    attempt.id = id;
    if (!dir->is_assigned) continue;
    attempt.is_assigned = true;
    attempt.local.fencing_token = dir->fencing_token;
    attempt.ranks = dir->ranks;
  }
  return found;
}

// Every look covers everything: the simulator reports no single file.
agent::RunDirs::Changes SimRunDirs::TakeChanges() {
  Changes changes;
  changes.any_lost = true;
  return changes;
}

agent::RunDirs::Sight SimRunDirs::Look(AttemptId id) {
  Sight sight;
  const RunDirectory* dir = machine_.FindDirectory(id);
  if (dir == nullptr) return sight;
  sight.is_supervised = dir->is_locked;
  sight.has_supervisor_record = dir->has_supervisor_record;
  sight.exit = dir->exit;
  return sight;
}

void SimRunDirs::Read(agent::Attempt& attempt) {
  const RunDirectory* dir = machine_.FindDirectory(attempt.id);
  if (dir == nullptr) return;
  agent::LocalAttempt& local = attempt.local;
  local.stop = dir->stop;
  local.lease_expire = dir->lease.expire_uptime;
  local.rendezvous.clear();
  for (const auto& [key, value] : dir->rendezvous) local.rendezvous.insert(key);
  local.checkpoint_request = dir->checkpoint_request;
  local.checkpoints.assign(dir->checkpoints.begin(), dir->checkpoints.end());
  attempt.progress = dir->progress;
  for (const int64_t pid : trainers_.PidsOf(machine_.number, attempt.id)) {
    const RankProcess& process = trainers_.processes().at(pid);
    attempt.progress[process.start.rank] = trainers_.ProgressOf(process);
  }
}

absl::StatusOr<std::string> SimRunDirs::RendezvousValue(AttemptId id, const std::string& key) {
  const RunDirectory* dir = machine_.FindDirectory(id);
  if (dir == nullptr || !dir->rendezvous.contains(key)) return absl::NotFoundError(key);
  return dir->rendezvous.at(key);
}

absl::Status SimRunDirs::Prepare(AttemptId id, const agent::DesiredAttempt&) {
  if (machine_.is_disk_full) return error::DiskFull(machine_.name);
  auto dir = std::make_shared<RunDirectory>();
  dir->id = id;
  dir->begun = world_.now();
  machine_.directories[id] = std::move(dir);
  return absl::OkStatus();
}

void SimRunDirs::Fetch(AttemptId id, const agent::DesiredAttempt& wanted) {
  on_fetch(id, wanted.resume_from.has_value() ? *wanted.resume_from : *wanted.init_from);
}

void SimRunDirs::CancelFetch(AttemptId id) {
  on_cancel_fetch(id);
}

absl::Status SimRunDirs::Assign(agent::Attempt& attempt, const agent::DesiredAttempt& wanted,
                                absl::Duration lease_expire) {
  TY_ASSIGN_OR_RETURN(RunDirectory * dir, Writable(attempt.id));
  dir->lease.expire_uptime = lease_expire;
  dir->is_assigned = true;
  dir->fencing_token = wanted.fencing_token;
  dir->world_size = wanted.world_size;
  dir->ranks = wanted.ranks;
  dir->resume_step = wanted.resume_from.has_value() ? wanted.resume_from->step : 0;
  dir->script = static_cast<size_t>(std::stoul(wanted.spec_json));
  dir->spans_workers = wanted.spans_workers;
  dir->failures = wanted.failures;
  dir->run_time = wanted.run_time;
  attempt.ranks = wanted.ranks;
  world_.Say(machine_.name, "begins ", AttemptName(attempt.id), " with ", wanted.ranks.size(),
             " ranks of ", wanted.world_size);
  return absl::OkStatus();
}

absl::Status SimRunDirs::Launch(const agent::Attempt& attempt) {
  machine_.LaunchSupervisor(attempt.id);
  return absl::OkStatus();
}

absl::Status SimRunDirs::RecordUnstarted(AttemptId id, const absl::Status&) {
  TY_ASSIGN_OR_RETURN(RunDirectory * dir, Writable(id));
  if (dir->is_locked || dir->exit.has_value() || dir->has_supervisor_record) {
    return absl::OkStatus();
  }
  run_dir::AttemptExit exit;
  exit.outcome = run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::kExitTransient;
  exit.reason = "SUPERVISOR_NOT_STARTED";
  dir->exit = exit;
  return absl::OkStatus();
}

absl::Status SimRunDirs::RecordDeath(AttemptId id) {
  RunDirectory* dir = machine_.FindDirectory(id);
  if (dir == nullptr || dir->is_locked || dir->exit.has_value()) return absl::OkStatus();
  const std::vector<int64_t> left = trainers_.PidsOf(machine_.number, id);
  for (const int64_t pid : left) trainers_.Send(pid, Trainers::Signal::kKill);
  if (!left.empty() || machine_.is_disk_full) {
    wake_after(100 * kMillisecond);
    return absl::UnavailableError("ranks are still there");
  }
  run_dir::AttemptExit exit;
  const bool stopped = dir->stop.has_value();
  exit.outcome = stopped ? run_dir::Outcome::kStopped : run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::ExitCode(exit.outcome);
  exit.reason = stopped ? dir->stop->reason : "SUPERVISOR_DIED";
  exit.message = "the supervisor of the attempt died";
  if (!stopped && !dir->ranks.empty()) exit.failed_rank = dir->ranks.front().rank;
  world_.Say(machine_.name, "records the death of ", AttemptName(id));
  dir->exit = exit;
  wake_after(kMillisecond);
  return absl::OkStatus();
}

absl::StatusOr<RunDirectory*> SimRunDirs::Writable(AttemptId id) {
  RunDirectory* dir = machine_.FindDirectory(id);
  if (dir == nullptr) return absl::NotFoundError("no run directory");
  if (machine_.is_disk_full) return error::DiskFull(machine_.name);
  return dir;
}

absl::Status SimRunDirs::RequestStop(AttemptId id, const run_dir::StopRequest& stop) {
  TY_ASSIGN_OR_RETURN(RunDirectory * dir, Writable(id));
  world_.Say(machine_.name, "is to stop ", AttemptName(id), ": ", stop.reason);
  dir->stop = stop;
  machine_.Touch(id);
  return absl::OkStatus();
}

absl::Status SimRunDirs::RenewLease(AttemptId id, absl::Duration expire) {
  TY_ASSIGN_OR_RETURN(RunDirectory * dir, Writable(id));
  dir->lease.expire_uptime = expire;
  return absl::OkStatus();
}

absl::Status SimRunDirs::Publish(AttemptId id, const std::string& key, const std::string& value) {
  TY_ASSIGN_OR_RETURN(RunDirectory * dir, Writable(id));
  dir->rendezvous[key] = value;
  trainers_.TryGather({id, dir->fencing_token});
  return absl::OkStatus();
}

absl::Status SimRunDirs::AskCheckpoint(AttemptId id, int64_t number) {
  TY_ASSIGN_OR_RETURN(RunDirectory * dir, Writable(id));
  dir->checkpoint_request = number;
  trainers_.CheckpointAsked({id, dir->fencing_token});
  return absl::OkStatus();
}

absl::Status SimRunDirs::PruneCheckpoint(AttemptId id, int64_t step) {
  if (RunDirectory* dir = machine_.FindDirectory(id)) dir->checkpoints.erase(step);
  return absl::OkStatus();
}

void SimRunDirs::Discard(AttemptId id) {
  machine_.directories.erase(id);
}

absl::Status SimRunDirs::Remove(AttemptId id) {
  world_.Say(machine_.name, "removes ", AttemptName(id));
  if (const RunDirectory* dir = machine_.FindDirectory(id)) on_remove(*dir);
  machine_.directories.erase(id);
  return absl::OkStatus();
}

}  // namespace trainyard::sim
