// What is on the host's disk, and the steps that change it: worker/agent/attempts.cc and launch.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/sim/daemon.h"

namespace trainyard::sim {
namespace {

using agent::Action;
using agent::Phase;
using agent::ReportedAttempt;

constexpr absl::Duration kLaunchPatience = absl::Seconds(5);
constexpr int kLaunchesMax = 3;

}  // namespace

void Daemon::Adopt() {
  for (const auto& [id, dir] : host_.directories) {
    Attempt& attempt = attempts_[id];
    if (dir->is_assigned) attempt.local.fencing_token = dir->fencing_token;
    ObserveOne(id, attempt);
  }
}

void Daemon::Observe() {
  for (auto& [id, attempt] : attempts_) ObserveOne(id, attempt);
}

Phase Daemon::PhaseOf(AttemptId id, const Attempt& attempt) const {
  if (attempt.local.phase == Phase::kPreparing) return Phase::kPreparing;
  const RunDirectory* dir = host_.FindDirectory(id);
  if (dir == nullptr) return Phase::kIncomplete;
  if (dir->exit.has_value()) return Phase::kExited;
  if (dir->has_supervisor_record) return dir->is_locked ? Phase::kAlive : Phase::kOrphaned;
  if (dir->is_locked) return Phase::kLaunching;
  if (attempt.launches > 0 && host_.Uptime() < attempt.launched_uptime + kLaunchPatience) {
    return Phase::kLaunching;
  }
  return dir->is_assigned ? Phase::kPrepared : Phase::kIncomplete;
}

void Daemon::ObserveOne(AttemptId id, Attempt& attempt) {
  if (!attempt.has_directory || attempt.exit.has_value()) return;
  attempt.local.phase = PhaseOf(id, attempt);
  const RunDirectory* dir = host_.FindDirectory(id);
  if (dir == nullptr || attempt.local.phase == Phase::kPreparing ||
      attempt.local.phase == Phase::kIncomplete) {
    return;
  }
  if (attempt.local.phase == Phase::kExited) attempt.exit = dir->exit;
  attempt.local.stop = dir->stop;
  attempt.local.lease_expire = dir->lease.expire_uptime;
  attempt.local.rendezvous.clear();
  for (const auto& [key, value] : dir->rendezvous) attempt.local.rendezvous.insert(key);
  attempt.local.checkpoint_request = dir->checkpoint_request;
  attempt.local.checkpoints.assign(dir->checkpoints.begin(), dir->checkpoints.end());
  attempt.progress = dir->progress;
  for (const int64_t pid : trainers_.PidsOf(host_.number, id)) {
    const RankProcess& process = trainers_.processes().at(pid);
    attempt.progress[process.start.rank] = trainers_.ProgressOf(process);
  }
}

void Daemon::Launch(AttemptId id, Attempt& attempt) {
  if (attempt.launches >= kLaunchesMax) {
    // RecordUnstarted
    RunDirectory& dir = *host_.directories.at(id);
    if (dir.is_locked || dir.exit.has_value() || dir.has_supervisor_record) return;
    run_dir::AttemptExit exit;
    exit.outcome = run_dir::Outcome::kTransient;
    exit.exit_code = run_dir::kExitTransient;
    exit.reason = "SUPERVISOR_NOT_STARTED";
    dir.exit = exit;
    return;
  }
  ++attempt.launches;
  attempt.launched_uptime = host_.Uptime();
  attempt.local.phase = Phase::kLaunching;
  host_.LaunchSupervisor(id);
}

void Daemon::Fail(AttemptId id, int64_t token, run_dir::AttemptExit exit) {
  host_.directories.erase(id);
  Attempt failed;
  failed.local.fencing_token = token;
  failed.local.phase = Phase::kExited;
  failed.local.drained = true;
  failed.has_directory = false;
  failed.exit = std::move(exit);
  attempts_[id] = std::move(failed);
}

void Daemon::Apply(const Action& action, const agent::DesiredAttempt* wanted) {
  const AttemptId id = action.attempt;
  Attempt& attempt = attempts_.at(id);
  RunDirectory* dir = host_.FindDirectory(id);
  switch (action.kind) {
    case Action::Kind::kBegin:
      break;
    case Action::Kind::kLaunch:
      Launch(id, attempt);
      break;
    case Action::Kind::kAbandon: {
      if (attempt.local.phase == Phase::kIncomplete) {
        host_.directories.erase(id);
        attempts_.erase(id);
        return;
      }
      run_dir::AttemptExit exit;
      exit.outcome = run_dir::Outcome::kStopped;
      exit.exit_code = run_dir::kExitStopped;
      exit.reason = action.stop.reason;
      Fail(id, attempt.local.fencing_token, std::move(exit));
      return;
    }
    case Action::Kind::kStop:
      attempt.local.stop = action.stop;
      if (host_.is_disk_full || dir == nullptr) return;
      world_.Say(host_.name, "is to stop ", AttemptName(id), ": ", action.stop.reason);
      dir->stop = action.stop;
      host_.Touch(id);
      break;
    case Action::Kind::kRecordDeath:
      RecordDeath(id);
      break;
    case Action::Kind::kRenewLease:
      attempt.local.lease_expire = action.lease_expire;
      if (host_.is_disk_full || dir == nullptr) return;
      dir->lease.expire_uptime = action.lease_expire;
      break;
    case Action::Kind::kPublish:
      TY_CHECK(wanted != nullptr);
      if (host_.is_disk_full || dir == nullptr) return;
      dir->rendezvous[action.key] = wanted->rendezvous.at(action.key);
      trainers_.TryGather({id, dir->fencing_token});
      break;
    case Action::Kind::kAskCheckpoint:
      if (host_.is_disk_full || dir == nullptr) return;
      dir->checkpoint_request = action.number;
      trainers_.CheckpointAsked({id, dir->fencing_token});
      break;
    case Action::Kind::kPruneCheckpoint:
      if (dir != nullptr) dir->checkpoints.erase(action.number);
      break;
    case Action::Kind::kRemove:
      world_.Say(host_.name, "removes ", AttemptName(id));
      host_.directories.erase(id);
      attempts_.erase(id);
      break;
  }
}

void Daemon::RecordDeath(AttemptId id) {
  RunDirectory* dir = host_.FindDirectory(id);
  if (dir == nullptr || dir->is_locked || dir->exit.has_value()) return;
  const std::vector<int64_t> left = trainers_.PidsOf(host_.number, id);
  for (const int64_t pid : left) trainers_.Send(pid, Trainers::Signal::kKill);
  if (!left.empty() || host_.is_disk_full) {
    After(100 * kMillisecond, [this] { Wake(); });
    return;
  }
  run_dir::AttemptExit exit;
  const bool stopped = dir->stop.has_value();
  exit.outcome = stopped ? run_dir::Outcome::kStopped : run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::ExitCode(exit.outcome);
  exit.reason = stopped ? dir->stop->reason : "SUPERVISOR_DIED";
  exit.message = "the supervisor of the attempt died";
  if (!stopped && !dir->ranks.empty()) exit.failed_rank = dir->ranks.front().rank;
  world_.Say(host_.name, "records the death of ", AttemptName(id));
  dir->exit = exit;
  Wake();
}

ReportedAttempt Daemon::Describe(AttemptId id, const Attempt& attempt) const {
  using State = ReportedAttempt::State;
  ReportedAttempt reported;
  reported.id = id;
  reported.fencing_token = attempt.local.fencing_token;
  const RunDirectory* dir = host_.FindDirectory(id);
  const size_t ranks = dir == nullptr ? 0 : dir->ranks.size();
  const bool all_stepped =
      ranks > 0 && attempt.progress.size() == ranks &&
      std::all_of(attempt.progress.begin(), attempt.progress.end(), [](const auto& entry) {
        return entry.second.state != run_dir::Progress::State::kStarting;
      });
  if (attempt.exit.has_value()) {
    reported.state = State::kExited;
  } else if (attempt.local.stop.has_value()) {
    reported.state = State::kStopping;
  } else {
    reported.state = all_stepped ? State::kRunning : State::kStarting;
  }
  if (!attempt.progress.empty()) reported.progress = attempt.progress.begin()->second;
  if (!attempt.local.committed.empty()) {
    reported.checkpoint_step = *attempt.local.committed.rbegin();
  }
  reported.exit = attempt.exit;
  reported.drained = attempt.exit.has_value() && attempt.local.drained;
  return reported;
}

}  // namespace trainyard::sim
