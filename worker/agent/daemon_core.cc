// Implements the turn of the daemon, and the rules by which an attempt is begun, launched, given up
// and removed. Files and processes are reached through the port RunDirs.
#include "worker/agent/daemon_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {
namespace {

// A turn is made at least this often.
constexpr absl::Duration kTurnIdle = absl::Seconds(2);
// A run directory that cannot be made is tried this often; then the attempt has failed on this
// host.
constexpr int kBeginTries = 3;
constexpr absl::Duration kBeginRetry = absl::Milliseconds(300);

// A supervisor takes its lock within milliseconds. One that has not taken it after this time has
// failed.
constexpr absl::Duration kLaunchPatience = absl::Seconds(5);
constexpr int kLaunchesMax = 3;

// The interval at which files are read although no change was reported. The end of a supervisor
// that wrote no record is found in no other way, and while such an attempt is cleaned up, the whole
// gang waits.
constexpr absl::Duration kLookStarting = absl::Milliseconds(100);
constexpr absl::Duration kLookRunning = absl::Milliseconds(500);
constexpr absl::Duration kLookUnwatched = absl::Milliseconds(50);
constexpr absl::Duration kLookOrphaned = absl::Milliseconds(20);
// Without a pause, a step that fails again and again would keep a processor busy. What is
// unavailable, such as processes that are still ending, changes soon.
constexpr absl::Duration kUnavailableRetry = absl::Milliseconds(20);
constexpr absl::Duration kFailedRetry = absl::Milliseconds(300);

// Another host may have the device, or a better connection. The code is the same everywhere.
run_dir::Outcome OutcomeOfFailedBegin(absl::string_view reason) {
  if (reason == "DEVICE_NOT_FOUND") return run_dir::Outcome::kHardware;
  if (reason == error::kCodeRefused || reason == "SECRET_NOT_FOUND") {
    return run_dir::Outcome::kUserError;
  }
  return run_dir::Outcome::kTransient;
}

}  // namespace

DaemonCore::DaemonCore(RunDirs& dirs, std::vector<Device> devices, Clock& clock)
    : dirs_(dirs), devices_(std::move(devices)), clock_(clock) {}

void DaemonCore::Adopt() {
  for (Attempt& found : dirs_.Adopt()) {
    Attempt& attempt = attempts_[found.id];
    attempt = std::move(found);
    ObserveOne(attempt);
    LogInfo("found a run directory", {{"attempt", AttemptName(attempt.id)},
                                      {"exited", attempt.exit.has_value() ? "yes" : "no"}});
  }
}

void DaemonCore::Uploaded(AttemptId id, std::set<int64_t> committed, bool is_all_sent) {
  Attempt* attempt = Find(id);
  if (attempt == nullptr || !attempt->has_directory) return;
  attempt->local.committed = std::move(committed);
  attempt->local.drained = attempt->exit.has_value() && is_all_sent;
}

// The turn.

void DaemonCore::BeginTurn() {
  if (inbox_.has_value()) {
    desired_ = *std::move(inbox_);
    inbox_.reset();
    std::erase_if(begin_tries_, [this](const auto& entry) { return !Wanted(entry.first); });
    std::erase_if(fetches_secrets_, [this](AttemptId id) { return !Wanted(id); });
  }
  Observe();
  for (auto& [id, status] : fetched_) steps_.push_back(TakeFetched{id, status});
  fetched_.clear();
  steps_.push_back(Decide{});
}

bool DaemonCore::Step() {
  if (steps_.empty()) return false;
  const TurnStep step = std::move(steps_.front());
  steps_.pop_front();
  std::visit([this](const auto& one) { Do(one); }, step);
  return !steps_.empty();
}

Report DaemonCore::EndTurn() {
  Observe();
  Report report;
  if (desired_.has_value()) {
    report.desired_serial = desired_->serial;
    report.desired_revision = desired_->revision;
  }
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.local.phase == Phase::kIncomplete) continue;
    ReportedAttempt reported = Describe(attempt);
    AddRendezvous(attempt, reported);
    report.attempts.push_back(std::move(reported));
  }
  return report;
}

// These are keys that this host's ranks have set and that the other workers of the gang wait for.
// They are told until they come back from the server: a rank that has found its peers runs, while
// the peers may not have found it yet.
void DaemonCore::AddRendezvous(const Attempt& attempt, ReportedAttempt& reported) const {
  const DesiredAttempt* wanted = Wanted(attempt.id);
  if (reported.state != ReportedAttempt::State::kStarting &&
      reported.state != ReportedAttempt::State::kRunning) {
    return;
  }
  if (wanted == nullptr || !wanted->spans_workers) return;
  for (const std::string& key : attempt.local.rendezvous) {
    if (wanted->rendezvous.contains(key)) continue;
    auto value = dirs_.RendezvousValue(attempt.id, key);
    if (value.ok()) reported.rendezvous[key] = *std::move(value);
  }
}

absl::Duration DaemonCore::NextTurn() const {
  absl::Duration look = absl::InfiniteDuration();
  for (const auto& [id, attempt] : attempts_) look = std::min(look, attempt.look_due);
  absl::Duration next = std::min(kTurnIdle, look - clock_.Uptime());
  if (is_retrying()) next = std::min(next, kBeginRetry);
  return std::max(next, absl::ZeroDuration());
}

void DaemonCore::Do(const TakeFetched& fetched) {
  const Attempt* attempt = Find(fetched.id);
  const DesiredAttempt* wanted = Wanted(fetched.id);
  if (attempt == nullptr || attempt->local.phase != Phase::kPreparing) return;
  // If it is no longer to run, it is abandoned in this turn.
  if (wanted == nullptr || wanted->action != DesiredAttempt::Action::kRun) return;
  if (fetched.status.ok() && NeedsSecrets(fetched.id, *wanted)) {
    FetchSecrets(fetched.id, *wanted);
  } else if (fetched.status.ok()) {
    Do(Assign{fetched.id});
  } else {
    begin_tries_[fetched.id].failed = kBeginTries;
    BeginFailed(fetched.id, *wanted, fetched.status);
  }
}

void DaemonCore::Do(const Decide&) {
  std::map<AttemptId, LocalAttempt> locals;
  for (const auto& [id, attempt] : attempts_) locals[id] = attempt.local;
  std::vector<Action> actions = Reconcile(desired_, locals, clock_.Uptime());
  // The next attempt on a device does not wait until the folder of the last one is removed.
  std::stable_partition(actions.begin(), actions.end(),
                        [](const Action& action) { return action.kind != Action::Kind::kRemove; });
  steps_.insert(steps_.end(), actions.begin(), actions.end());
}

void DaemonCore::Do(const Action& action) {
  if (action.kind == Action::Kind::kBegin) {
    const DesiredAttempt* wanted = Wanted(action.attempt);
    TY_CHECK(wanted != nullptr);
    Begin(action.attempt, *wanted);
    return;
  }
  if (action.kind == Action::Kind::kAbandon) dirs_.CancelFetch(action.attempt);
  const absl::Status status = Apply(action);
  if (status.ok()) return;
  // The next turn finds what is missing and tries again.
  const bool is_soon = absl::IsUnavailable(status);
  if (Attempt* attempt = Find(action.attempt)) {
    attempt->look_due = clock_.Uptime() + (is_soon ? kUnavailableRetry : kFailedRetry);
  }
  if (!is_soon) {
    LogWarning("a step failed and will be tried again",
               {{"attempt", AttemptName(action.attempt)},
                {"action", absl::StrCat(static_cast<int>(action.kind))},
                {"error", std::string(status.message())}});
  }
}

// Looking at the run directories.

Attempt* DaemonCore::Find(AttemptId id) {
  const auto found = attempts_.find(id);
  return found == attempts_.end() ? nullptr : &found->second;
}

const DesiredAttempt* DaemonCore::Wanted(AttemptId id) const {
  if (!desired_.has_value()) return nullptr;
  const auto found = desired_->attempts.find(id);
  return found == desired_->attempts.end() ? nullptr : &found->second;
}

void DaemonCore::Observe() {
  const RunDirs::Changes changes = dirs_.TakeChanges();
  for (const AttemptId id : changes.changed) {
    if (Attempt* attempt = Find(id)) attempt->look_due = -absl::InfiniteDuration();
  }
  for (const AttemptId id : changes.ended_early) {
    // It is launched again without waiting for the first supervisor any longer.
    if (Attempt* attempt = Find(id)) attempt->launched_uptime = -absl::InfiniteDuration();
  }
  const absl::Duration now = clock_.Uptime();
  for (auto& [id, attempt] : attempts_) {
    if (!changes.any_lost && now < attempt.look_due) continue;
    ObserveOne(attempt);
    attempt.look_due = now + LookInterval(attempt);
  }
}

absl::Duration DaemonCore::LookInterval(const Attempt& attempt) const {
  if (!attempt.has_directory || attempt.exit.has_value()) return absl::InfiniteDuration();
  if (attempt.local.phase == Phase::kPreparing) return absl::InfiniteDuration();
  if (attempt.local.phase == Phase::kOrphaned) return kLookOrphaned;
  if (!attempt.is_watched) return kLookUnwatched;
  return attempt.progress.empty() ? kLookStarting : kLookRunning;
}

void DaemonCore::ObserveOne(Attempt& attempt) {
  if (!attempt.has_directory || attempt.exit.has_value()) return;
  attempt.local.phase = PhaseOf(attempt);
  if (attempt.local.phase != Phase::kPreparing && attempt.local.phase != Phase::kIncomplete) {
    dirs_.Read(attempt);
  }
}

Phase DaemonCore::PhaseOf(Attempt& attempt) {
  if (attempt.local.phase == Phase::kPreparing) return Phase::kPreparing;
  RunDirs::Sight sight = dirs_.Look(attempt.id);
  if (sight.exit.has_value()) {
    attempt.exit = std::move(sight.exit);
    return Phase::kExited;
  }
  if (sight.has_supervisor_record) return sight.is_supervised ? Phase::kAlive : Phase::kOrphaned;
  if (sight.is_supervised) return Phase::kLaunching;
  if (attempt.launches > 0 && clock_.Uptime() < attempt.launched_uptime + kLaunchPatience) {
    return Phase::kLaunching;
  }
  return attempt.is_assigned ? Phase::kPrepared : Phase::kIncomplete;
}

// Beginning attempts.

void DaemonCore::Begin(AttemptId id, const DesiredAttempt& wanted) {
  const auto tries = begin_tries_.find(id);
  if (tries != begin_tries_.end() && clock_.Uptime() < tries->second.next) return;
  if (const absl::Status prepared = dirs_.Prepare(id, wanted); !prepared.ok()) {
    BeginFailed(id, wanted, prepared);
    return;
  }
  fetches_secrets_.erase(id);
  Attempt& attempt = attempts_[id];
  attempt = {};
  attempt.id = id;
  attempt.local.fencing_token = wanted.fencing_token;
  attempt.local.phase = Phase::kPreparing;
  if (wanted.needs_fetch()) {
    dirs_.Fetch(id, wanted);
  } else if (wanted.needs_secrets) {
    FetchSecrets(id, wanted);
  } else {
    steps_.push_front(Assign{id});
  }
}

// Secrets come last, so that they lie on this host no longer than they must.
bool DaemonCore::NeedsSecrets(AttemptId id, const DesiredAttempt& wanted) const {
  return wanted.needs_secrets && !fetches_secrets_.contains(id);
}

void DaemonCore::FetchSecrets(AttemptId id, const DesiredAttempt& wanted) {
  fetches_secrets_.insert(id);
  dirs_.FetchSecrets(id, wanted.fencing_token);
}

void DaemonCore::Do(const Assign& assign) {
  Attempt* attempt = Find(assign.id);
  const DesiredAttempt* wanted = Wanted(assign.id);
  TY_CHECK(attempt != nullptr && wanted != nullptr);
  absl::Status assigned = CheckDevices(*wanted);
  if (assigned.ok()) assigned = dirs_.Assign(*attempt, *wanted, LeaseOf(*desired_, *wanted));
  if (!assigned.ok()) {
    BeginFailed(assign.id, *wanted, assigned);
    return;
  }
  attempt->is_assigned = true;
  attempt->local.phase = Phase::kPrepared;
  begin_tries_.erase(assign.id);
  LogInfo("attempt begun",
          {{"attempt", AttemptName(assign.id)}, {"ranks", absl::StrCat(wanted->ranks.size())}});
  steps_.push_front(Launch{assign.id});
}

absl::Status DaemonCore::CheckDevices(const DesiredAttempt& wanted) const {
  const bool is_deviceless =
      std::any_of(wanted.ranks.begin(), wanted.ranks.end(),
                  [](const DesiredRank& rank) { return rank.device.empty(); });
  if (is_deviceless && !wanted.runs_program) {
    return absl::InvalidArgumentError("a rank without a device can only run a program");
  }
  const int rank = FirstWithoutDevice(wanted.ranks);
  for (const DesiredRank& candidate : wanted.ranks) {
    if (candidate.rank != rank) continue;
    return MakeError(absl::StatusCode::kNotFound, "DEVICE_NOT_FOUND",
                     absl::StrCat("rank ", rank, " wants device '", candidate.device,
                                  "', which this worker does not have"));
  }
  return absl::OkStatus();
}

// Returns the first rank that cannot begin because its device is missing, or -1 if all devices are
// here.
int DaemonCore::FirstWithoutDevice(const std::vector<DesiredRank>& ranks) const {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [this](const DesiredRank& rank) {
    return !rank.device.empty() &&
           std::none_of(devices_.begin(), devices_.end(),
                        [&rank](const Device& device) { return device.name == rank.device; });
  });
  return found == ranks.end() ? -1 : found->rank;
}

void DaemonCore::BeginFailed(AttemptId id, const DesiredAttempt& wanted,
                             const absl::Status& status) {
  LogWarning("an attempt cannot be begun",
             {{"attempt", AttemptName(id)}, {"error", std::string(status.message())}});
  BeginTries& tries = begin_tries_[id];
  // A full disk may have room again, but a missing device will not appear.
  const bool is_for_good = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  if (!is_for_good && ++tries.failed < kBeginTries) {
    tries.next = clock_.Uptime() + kBeginRetry;
    dirs_.Discard(id);
    attempts_.erase(id);
    return;
  }
  begin_tries_.erase(id);
  run_dir::AttemptExit exit;
  const std::string reason = ErrorReason(status);
  exit.outcome = OutcomeOfFailedBegin(reason);
  exit.exit_code = run_dir::ExitCode(exit.outcome);
  exit.reason = reason.empty() ? "START_FAILED" : reason;
  exit.message = std::string(status.message());
  const int without_device = FirstWithoutDevice(wanted.ranks);
  exit.failed_rank = without_device < 0 ? wanted.ranks.front().rank : without_device;
  Fail(id, wanted.fencing_token, std::move(exit));
}

void DaemonCore::Do(const Launch& launch) {
  Attempt* attempt = Find(launch.id);
  if (attempt == nullptr) return;
  const absl::Status launched = LaunchSupervisor(*attempt);
  if (launched.ok()) return;
  const DesiredAttempt* wanted = Wanted(launch.id);
  if (wanted != nullptr) BeginFailed(launch.id, *wanted, launched);
}

absl::Status DaemonCore::LaunchSupervisor(Attempt& attempt) {
  TY_CHECK(attempt.is_assigned);
  if (attempt.launches >= kLaunchesMax) {
    return dirs_.RecordUnstarted(
        attempt.id, absl::UnavailableError(absl::StrCat("the supervisor did not start in ",
                                                        attempt.launches, " tries")));
  }
  ++attempt.launches;
  attempt.launched_uptime = clock_.Uptime();
  attempt.look_due = attempt.launched_uptime;
  attempt.local.phase = Phase::kLaunching;
  absl::Status launched = dirs_.Launch(attempt);
  if (launched.ok()) return launched;
  LogError("a supervisor cannot be launched",
           {{"attempt", AttemptName(attempt.id)}, {"error", std::string(launched.message())}});
  return dirs_.RecordUnstarted(attempt.id, launched);
}

// Ending attempts.

// From now on the attempt counts as exited, for a reason of this host, and its folder is removed.
void DaemonCore::Fail(AttemptId id, int64_t fencing_token, run_dir::AttemptExit exit) {
  dirs_.Discard(id);
  Attempt failed;
  failed.id = id;
  failed.local.fencing_token = fencing_token;
  failed.local.phase = Phase::kExited;
  failed.local.drained = true;
  failed.has_directory = false;
  exit.end_time_us = absl::ToUnixMicros(clock_.Now());
  failed.exit = std::move(exit);
  attempts_.insert_or_assign(id, std::move(failed));
}

void DaemonCore::Abandon(const Attempt& attempt, const run_dir::StopRequest& stop) {
  const AttemptId id = attempt.id;
  if (attempt.local.phase == Phase::kIncomplete) {
    dirs_.Discard(id);
    attempts_.erase(id);
    return;
  }
  run_dir::AttemptExit exit;
  exit.outcome = run_dir::Outcome::kStopped;
  exit.exit_code = run_dir::kExitStopped;
  exit.reason = stop.reason;
  Fail(id, attempt.local.fencing_token, std::move(exit));
}

void DaemonCore::Stop(AttemptId id, const run_dir::StopRequest& stop) {
  Action action;
  action.kind = Action::Kind::kStop;
  action.attempt = id;
  action.stop = stop;
  Do(action);
}

absl::Status DaemonCore::Apply(const Action& action) {
  Attempt* attempt = Find(action.attempt);
  TY_CHECK(attempt != nullptr);
  attempt->look_due = -absl::InfiniteDuration();
  switch (action.kind) {
    case Action::Kind::kBegin:
      TY_CHECK(false);
      break;
    case Action::Kind::kLaunch:
      return LaunchSupervisor(*attempt);
    case Action::Kind::kAbandon:
      Abandon(*attempt, action.stop);
      return absl::OkStatus();
    case Action::Kind::kStop:
      attempt->local.stop = action.stop;
      return dirs_.RequestStop(action.attempt, action.stop);
    case Action::Kind::kRecordDeath:
      return dirs_.RecordDeath(action.attempt);
    case Action::Kind::kRenewLease:
      attempt->local.lease_expire = action.lease_expire;
      return dirs_.RenewLease(action.attempt, action.lease_expire);
    case Action::Kind::kPublish: {
      const DesiredAttempt* wanted = Wanted(action.attempt);
      TY_CHECK(wanted != nullptr);
      return dirs_.Publish(action.attempt, action.key, wanted->rendezvous.at(action.key));
    }
    case Action::Kind::kAskCheckpoint:
      return dirs_.AskCheckpoint(action.attempt, action.number);
    case Action::Kind::kPruneCheckpoint:
      return dirs_.PruneCheckpoint(action.attempt, action.number);
    case Action::Kind::kRemove:
      TY_RETURN_IF_ERROR(dirs_.Remove(action.attempt));
      attempts_.erase(action.attempt);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace trainyard::agent
