#include "worker/agent/attempts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/interfaces.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/agent/convert.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/rendezvous.h"
#include "worker/run_dir/supervisor_lock.h"

namespace trainyard::agent {
namespace {

// A supervisor takes its lock within milliseconds. One that has not after this has failed.
constexpr absl::Duration kLaunchPatience = absl::Seconds(5);
constexpr int kLaunchesMax = 3;

constexpr absl::Duration kSweepDelay = absl::Seconds(30);

// Looks where no change was told. The end of a supervisor that wrote no record is found by them
// alone; while one is being cleaned up, everybody waits.
constexpr absl::Duration kLookStarting = absl::Milliseconds(100);
constexpr absl::Duration kLookRunning = absl::Milliseconds(500);
constexpr absl::Duration kLookUnwatched = absl::Milliseconds(50);
constexpr absl::Duration kLookOrphaned = absl::Milliseconds(20);

bool HasStepped(const run_dir::Progress& progress) {
  return progress.state != run_dir::Progress::State::kStarting;
}

}  // namespace

Attempts::Attempts(HostSettings settings, std::vector<Device> devices, Clock& clock,
                   FileWatch* watch)
    : settings_(std::move(settings)),
      devices_(std::move(devices)),
      clock_(clock),
      watch_(watch),
      sweeper_(JoinPath(settings_.state_dir, "removed"), kSweepDelay, clock) {}

Attempt* Attempts::Find(AttemptId id) {
  const auto found = attempts_.find(id);
  return found == attempts_.end() ? nullptr : &found->second;
}

std::map<AttemptId, LocalAttempt> Attempts::Locals() const {
  std::map<AttemptId, LocalAttempt> locals;
  for (const auto& [id, attempt] : attempts_) locals[id] = attempt.local;
  return locals;
}

void Attempts::Adopt() {
  const std::string root = JoinPath(settings_.state_dir, "attempts");
  const auto jobs = ListDirectory(root);
  if (!jobs.ok()) return;
  for (const std::string& job : *jobs) {
    const auto numbers = ListDirectory(JoinPath(root, job));
    if (!numbers.ok()) continue;
    for (const std::string& number : *numbers) {
      AttemptId id;
      if (!absl::SimpleAtoi(job, &id.job.value) || !absl::SimpleAtoi(number, &id.number)) continue;
      Attempt& attempt = attempts_[id];
      attempt.id = id;
      attempt.dir =
          run_dir::RunDir(run_dir::AttemptDirectory(settings_.state_dir, id.job.value, id.number));
      auto assignment = run_dir::ReadAssignment(attempt.dir);
      if (assignment.ok()) {
        attempt.local.fencing_token = assignment->fencing_token;
        SetAssignment(attempt, *std::move(assignment));
      }
      ObserveOne(attempt);
      Watch(attempt);
      LogInfo("found a run directory",
              {{"attempt", AttemptName(id)}, {"exited", attempt.exit.has_value() ? "yes" : "no"}});
    }
  }
}

void Attempts::SetAssignment(Attempt& attempt, run_dir::Assignment assignment) {
  attempt.global_batch = GlobalBatch(assignment.spec_json);
  attempt.assignment = std::move(assignment);
}

void Attempts::Watch(Attempt& attempt) {
  if (watch_ == nullptr) return;
  attempt.is_watched = true;
  std::vector<std::string> folders = {attempt.dir.root(), attempt.dir.CheckpointsDir()};
  if (attempt.assignment.has_value()) {
    if (attempt.assignment->world_size > 1) folders.push_back(attempt.dir.RendezvousDir());
    for (const auto& rank : attempt.assignment->ranks) {
      folders.push_back(attempt.dir.RankDir(rank.rank));
    }
  }
  for (const std::string& folder : folders) {
    const absl::StatusOr<int> number = watch_->Add(folder);
    if (number.ok()) {
      folders_[*number] = attempt.id;
    } else {
      attempt.is_watched = false;
    }
  }
}

void Attempts::TakeChanges() {
  if (watch_ == nullptr) return;
  const FileChanges changes = watch_->Take();
  for (const int folder : changes.folders) {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) continue;
    Attempt* attempt = Find(found->second);
    if (attempt == nullptr) {
      folders_.erase(found);
    } else {
      attempt->look_due = -absl::InfiniteDuration();
    }
  }
  if (!changes.any_lost) return;
  for (auto& [id, attempt] : attempts_) attempt.look_due = -absl::InfiniteDuration();
}

void Attempts::Observe() {
  ReapSupervisors();
  TakeChanges();
  const absl::Duration now = clock_.Uptime();
  for (auto& [id, attempt] : attempts_) {
    if (now < attempt.look_due) continue;
    ObserveOne(attempt);
    attempt.look_due = now + LookInterval(attempt);
  }
}

absl::Duration Attempts::LookInterval(const Attempt& attempt) const {
  if (!attempt.has_directory || attempt.exit.has_value()) return absl::InfiniteDuration();
  if (attempt.local.phase == Phase::kPreparing) return absl::InfiniteDuration();
  if (attempt.local.phase == Phase::kOrphaned) return kLookOrphaned;
  if (!attempt.is_watched) return kLookUnwatched;
  return attempt.progress.empty() ? kLookStarting : kLookRunning;
}

absl::Duration Attempts::NextLook() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [id, attempt] : attempts_) next = std::min(next, attempt.look_due);
  return next;
}

Phase Attempts::PhaseOf(Attempt& attempt) {
  if (attempt.local.phase == Phase::kPreparing) return Phase::kPreparing;
  // Whether the supervisor lives is asked before the exit record is looked for: one that ends in
  // between has written it.
  const auto supervised = run_dir::IsSupervised(attempt.dir);
  if (FileExists(attempt.dir.ExitPath())) {
    if (auto exit = run_dir::ReadAttemptExit(attempt.dir); exit.ok()) {
      attempt.exit = *std::move(exit);
    } else {
      attempt.exit = run_dir::AttemptExit{};
      attempt.exit->outcome = run_dir::Outcome::kTransient;
      attempt.exit->reason = ErrorReason(exit.status());
      attempt.exit->message = std::string(exit.status().message());
    }
    return Phase::kExited;
  }
  const bool alive = !supervised.ok() || *supervised;
  if (FileExists(attempt.dir.SupervisorPath())) return alive ? Phase::kAlive : Phase::kOrphaned;
  if (alive) return Phase::kLaunching;
  if (attempt.launches > 0 && clock_.Uptime() < attempt.launched_uptime + kLaunchPatience) {
    return Phase::kLaunching;
  }
  return attempt.assignment.has_value() ? Phase::kPrepared : Phase::kIncomplete;
}

void Attempts::ObserveOne(Attempt& attempt) {
  if (!attempt.has_directory || attempt.exit.has_value()) return;
  attempt.local.phase = PhaseOf(attempt);
  if (attempt.local.phase != Phase::kPreparing && attempt.local.phase != Phase::kIncomplete) {
    ReadRecords(attempt);
  }
}

void Attempts::ReadRecords(Attempt& attempt) {
  const run_dir::RunDir& dir = attempt.dir;
  LocalAttempt& local = attempt.local;
  if (const auto stop = run_dir::ReadStopRequest(dir); stop.ok()) local.stop = *stop;
  if (const auto lease = run_dir::ReadLease(dir); lease.ok()) {
    local.lease_expire = lease->expire_uptime;
  }
  if (const auto request = run_dir::ReadCheckpointRequest(dir); request.ok()) {
    local.checkpoint_request = *request;
  }
  if (const auto keys = run_dir::ListRendezvousKeys(dir); keys.ok()) {
    local.rendezvous = std::set<std::string>(keys->begin(), keys->end());
  }
  local.checkpoints = checkpoint::ListCheckpoints(dir.CheckpointsDir());
  if (!attempt.assignment.has_value()) return;
  for (const run_dir::RankAssignment& rank : attempt.assignment->ranks) {
    auto progress = run_dir::ReadProgress(dir, rank.rank);
    if (progress.ok()) attempt.progress[rank.rank] = *std::move(progress);
  }
  if (local.phase == Phase::kExited && !attempt.assignment->ranks.empty()) {
    const int lowest = attempt.assignment->ranks.front().rank;
    const auto result = run_dir::ReadRankResult(dir, lowest);
    if (result.ok()) attempt.final_metrics = result->metrics;
  }
}

absl::StatusOr<bool> Attempts::Prepare(AttemptId id, const DesiredAttempt& desired) {
  Attempt attempt;
  attempt.id = id;
  attempt.dir =
      run_dir::RunDir(run_dir::AttemptDirectory(settings_.state_dir, id.job.value, id.number));
  attempt.local.fencing_token = desired.fencing_token;
  attempt.local.phase = Phase::kPreparing;
  attempt.spans_workers = desired.spans_workers;
  // What a daemon that died left here never got as far as an assignment.
  TY_RETURN_IF_ERROR(RemoveTree(attempt.dir.root()));
  TY_RETURN_IF_ERROR(MakeDirectories(attempt.dir.ControlDir()));
  if (desired.world_size > 1) TY_RETURN_IF_ERROR(MakeDirectories(attempt.dir.RendezvousDir()));
  TY_RETURN_IF_ERROR(MakeDirectories(attempt.dir.CheckpointsDir()));
  for (const DesiredRank& rank : desired.ranks) {
    TY_RETURN_IF_ERROR(attempt.dir.CreateRankDirectory(rank.rank));
  }
  if (desired.resume_from.has_value()) {
    TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(attempt.dir.root(), "resume")));
  }
  attempts_.insert_or_assign(id, std::move(attempt));
  return !desired.resume_from.has_value();
}

std::string Attempts::ResumeFolder(const Attempt& attempt, const ResumeSource& source) {
  return checkpoint::CheckpointPath(JoinPath(attempt.dir.root(), "resume"), source.step);
}

absl::StatusOr<run_dir::Assignment> Attempts::MakeAssignment(AttemptId id,
                                                             const DesiredAttempt& desired,
                                                             const Attempt& attempt) const {
  run_dir::Assignment assignment;
  assignment.job = id.job.value;
  assignment.attempt = id.number;
  assignment.fencing_token = desired.fencing_token;
  assignment.world_size = desired.world_size;
  assignment.interface = settings_.interface;
  if (desired.spans_workers) {
    // Looked up for each attempt: addresses change while a daemon runs.
    TY_ASSIGN_OR_RETURN(const InterfaceAddress here, FindInterface(settings_.address));
    assignment.interface = here.address;
  }
  assignment.worker = settings_.worker;
  assignment.dataset_dir = settings_.dataset_dir;
  assignment.spec_json = desired.spec_json;
  if (desired.resume_from.has_value()) {
    assignment.resume_from = ResumeFolder(attempt, *desired.resume_from);
  }
  for (const DesiredRank& rank : desired.ranks) {
    const auto device =
        std::find_if(devices_.begin(), devices_.end(),
                     [&rank](const Device& candidate) { return candidate.name == rank.device; });
    if (device == devices_.end()) {
      return MakeError(absl::StatusCode::kNotFound, "DEVICE_NOT_FOUND",
                       absl::StrCat("rank ", rank.rank, " wants device '", rank.device,
                                    "', which this worker does not have"));
    }
    run_dir::RankAssignment item;
    item.rank = rank.rank;
    item.local_rank = static_cast<int>(assignment.ranks.size());
    item.device = device->name;
    item.device_type = device->type;
    item.cpus = device->cpus;
    item.threads = device->threads;
    item.memory_bytes = device->memory_bytes;
    assignment.backend = device->type == "cpu" ? "cpu" : "cuda";
    assignment.ranks.push_back(std::move(item));
  }
  return assignment;
}

absl::Status Attempts::Assign(AttemptId id, const DesiredAttempt& desired,
                              absl::Duration lease_expire) {
  Attempt* attempt = Find(id);
  TY_CHECK(attempt != nullptr);
  TY_ASSIGN_OR_RETURN(run_dir::Assignment assignment, MakeAssignment(id, desired, *attempt));
  TY_RETURN_IF_ERROR(run_dir::WriteLease(attempt->dir, {lease_expire}));
  TY_RETURN_IF_ERROR(run_dir::WriteAssignment(attempt->dir, assignment));
  SetAssignment(*attempt, std::move(assignment));
  attempt->local.phase = Phase::kPrepared;
  Watch(*attempt);
  return Launch(*attempt);
}

absl::Status Attempts::Launch(Attempt& attempt) {
  TY_CHECK(attempt.assignment.has_value());
  if (attempt.launches >= kLaunchesMax) {
    return RecordUnstarted(
        attempt.dir,
        absl::UnavailableError(absl::StrCat("the supervisor did not start in ", attempt.launches,
                                            " tries; see ", attempt.dir.SupervisorLogPath())),
        clock_);
  }
  ++attempt.launches;
  attempt.launched_uptime = clock_.Uptime();
  attempt.look_due = attempt.launched_uptime;
  attempt.local.phase = Phase::kLaunching;
  const absl::StatusOr<pid_t> supervisor =
      LaunchSupervisor(settings_.programs, attempt.dir, attempt.assignment->backend);
  if (supervisor.ok()) {
    supervisors_[*supervisor] = attempt.id;
    return absl::OkStatus();
  }
  LogError("a supervisor cannot be launched",
           {{"attempt", AttemptName(attempt.id)},
            {"error", std::string(supervisor.status().message())}});
  return RecordUnstarted(attempt.dir, supervisor.status(), clock_);
}

void Attempts::ReapSupervisors() {
  std::erase_if(supervisors_, [this](const auto& entry) {
    int status = 0;
    const pid_t ended = waitpid(entry.first, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    Attempt* attempt = Find(entry.second);
    if (attempt != nullptr) attempt->look_due = -absl::InfiniteDuration();
    if (ended > 0 && status != 0) {
      LogWarning("a supervisor ended badly",
                 {{"attempt", AttemptName(entry.second)}, {"status", absl::StrCat(status)}});
      // Where it had not begun, it is launched again without waiting for it any longer.
      if (attempt != nullptr) attempt->launched_uptime = -absl::InfiniteDuration();
    }
    return true;
  });
}

void Attempts::Discard(AttemptId id) {
  const std::string root = run_dir::AttemptDirectory(settings_.state_dir, id.job.value, id.number);
  if (const absl::Status removed = RemoveTree(root); !removed.ok()) {
    LogWarning("a run directory cannot be removed", {{"error", std::string(removed.message())}});
  }
  attempts_.erase(id);
}

void Attempts::Fail(AttemptId id, int64_t fencing_token, run_dir::AttemptExit exit) {
  Discard(id);
  Attempt failed;
  failed.id = id;
  failed.dir =
      run_dir::RunDir(run_dir::AttemptDirectory(settings_.state_dir, id.job.value, id.number));
  failed.local.fencing_token = fencing_token;
  failed.local.phase = Phase::kExited;
  failed.local.drained = true;
  failed.has_directory = false;
  exit.end_time_us = absl::ToUnixMicros(clock_.Now());
  failed.exit = std::move(exit);
  attempts_.insert_or_assign(id, std::move(failed));
}

absl::Status Attempts::Apply(const Action& action, const DesiredAttempt* desired) {
  Attempt* attempt = Find(action.attempt);
  TY_CHECK(attempt != nullptr);
  attempt->look_due = -absl::InfiniteDuration();
  switch (action.kind) {
    case Action::Kind::kBegin:
      TY_CHECK(false);
      break;
    case Action::Kind::kLaunch:
      return Launch(*attempt);
    case Action::Kind::kAbandon: {
      if (attempt->local.phase == Phase::kIncomplete) {
        Discard(action.attempt);
        return absl::OkStatus();
      }
      run_dir::AttemptExit exit;
      exit.outcome = run_dir::Outcome::kStopped;
      exit.exit_code = run_dir::kExitStopped;
      exit.reason = action.stop.reason;
      Fail(action.attempt, attempt->local.fencing_token, std::move(exit));
      return absl::OkStatus();
    }
    case Action::Kind::kStop:
      attempt->local.stop = action.stop;
      return run_dir::RequestStop(attempt->dir, action.stop);
    case Action::Kind::kRecordDeath:
      return RecordDeath(attempt->dir, attempt->assignment.value_or(run_dir::Assignment{}), clock_);
    case Action::Kind::kRenewLease:
      attempt->local.lease_expire = action.lease_expire;
      return run_dir::WriteLease(attempt->dir, {action.lease_expire});
    case Action::Kind::kPublish:
      TY_CHECK(desired != nullptr);
      return run_dir::SetRendezvousKey(attempt->dir, action.key,
                                       desired->rendezvous.at(action.key));
    case Action::Kind::kAskCheckpoint:
      return run_dir::RequestCheckpoint(attempt->dir, action.number);
    case Action::Kind::kPruneCheckpoint:
      return RemoveTree(checkpoint::CheckpointPath(attempt->dir.CheckpointsDir(), action.number));
    case Action::Kind::kRemove: {
      const std::string root = attempt->dir.root();
      TY_RETURN_IF_ERROR(sweeper_.Remove(
          root, absl::StrCat(action.attempt.job.value, ".", action.attempt.number)));
      // The job's folder goes with its last attempt.
      (void)rmdir(root.substr(0, root.rfind('/')).c_str());
      attempts_.erase(action.attempt);
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

std::optional<absl::Duration> TimeLeft(const run_dir::Progress& progress, int64_t global_batch) {
  if (progress.samples_per_s <= 0 || global_batch <= 0) return std::nullopt;
  const int64_t steps = std::max<int64_t>(0, progress.total_steps - progress.step);
  return absl::Seconds(static_cast<double>(steps) * static_cast<double>(global_batch) /
                       progress.samples_per_s);
}

ReportedAttempt Describe(const Attempt& attempt) {
  ReportedAttempt reported;
  reported.id = attempt.id;
  reported.fencing_token = attempt.local.fencing_token;
  using State = ReportedAttempt::State;
  const size_t ranks = attempt.assignment.has_value() ? attempt.assignment->ranks.size() : 0;
  const bool all_stepped = ranks > 0 && attempt.progress.size() == ranks &&
                           std::all_of(attempt.progress.begin(), attempt.progress.end(),
                                       [](const auto& entry) { return HasStepped(entry.second); });
  if (attempt.exit.has_value()) {
    reported.state = State::kExited;
  } else if (attempt.local.stop.has_value()) {
    reported.state = State::kStopping;
  } else {
    reported.state = all_stepped ? State::kRunning : State::kStarting;
  }
  if (!attempt.progress.empty()) {
    reported.progress = attempt.progress.begin()->second;
    if (reported.state == State::kRunning) {
      reported.eta = TimeLeft(*reported.progress, attempt.global_batch);
    }
  }
  if (!attempt.local.committed.empty())
    reported.checkpoint_step = *attempt.local.committed.rbegin();
  reported.exit = attempt.exit;
  reported.drained = attempt.exit.has_value() && attempt.local.drained;
  reported.metrics = attempt.final_metrics;
  return reported;
}

}  // namespace trainyard::agent
