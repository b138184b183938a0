#include "tests/sim/daemon.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"

namespace trainyard::sim {
namespace {

using agent::Action;
using agent::DesiredAttempt;
using agent::Phase;

// As in agent.cc.
constexpr int kBeginTries = 5;
constexpr absl::Duration kBeginRetry = absl::Seconds(1);
// Nothing here happens by itself between two events, except deadlines.
constexpr Time kLook = 2 * kSecond;
constexpr Time kLookIdle = 20 * kSecond;

}  // namespace

Daemon::Daemon(World& world, const Options& options, Transport& transport, Server& server,
               Host& host, Trainers& trainers)
    : world_(world),
      options_(options),
      transport_(transport),
      server_(server),
      host_(host),
      trainers_(trainers) {}

void Daemon::Start() {
  if (is_running_ || !host_.is_on) return;
  ++life_;
  is_running_ = true;
  world_.Say(host_.name, "the daemon starts");
  Adopt();
  Wake();
}

void Daemon::Kill() {
  if (!is_running_) return;
  world_.Say(host_.name, "the daemon dies");
  ++life_;
  is_running_ = false;
  is_stopped_ = stops_in_turn_ = dies_in_turn_ = false;
  is_waking_ = is_in_turn_ = is_woken_again_ = is_pausing_ = is_uploading_ = heard_ = false;
  deferred_.clear();
  attempts_.clear();
  desired_.reset();
  inbox_.reset();
  submissions_.clear();
  reported_.reset();
  begin_tries_.clear();
  begin_next_.clear();
  session_.clear();
  if (call_ != nullptr) call_->Cancel();
  call_.reset();
  backoff_ = look_at_ = upload_backoff_ = 0;
  sequence_ = serial_ = answered_serial_ = 0;
  report_.reset();
  sent_.reset();
}

void Daemon::Stop(Time how_long, bool in_turn) {
  if (!is_running_ || is_stopped_) return;
  stop_length_ = how_long;
  stops_in_turn_ = in_turn;
  if (in_turn) return;
  is_stopped_ = true;
  world_.Say(host_.name, "the daemon is stopped for ", how_long / kSecond, " s");
  world_.After(how_long, [this, life = life_] {
    if (life != life_) return;
    is_stopped_ = false;
    world_.Say(host_.name, "the daemon goes on");
    std::vector<std::function<void()>> steps;
    steps.swap(deferred_);
    for (const auto& step : steps) Guard(step)();
  });
}

std::function<void()> Daemon::Guard(std::function<void()> step) {
  return [this, life = life_, step = std::move(step)] {
    if (life != life_) return;
    if (is_stopped_) {
      deferred_.push_back(step);
    } else {
      step();
    }
  };
}

void Daemon::After(Time delay, std::function<void()> step) {
  world_.After(delay, Guard(std::move(step)));
}

// Whether a fault that was meant for the middle of a turn strikes now.
bool Daemon::Breaks() {
  if (std::exchange(dies_in_turn_, false)) {
    Kill();
    world_.After(world_.random().Between(1, 60) * kSecond, [this] { Start(); });
    return true;
  }
  if (std::exchange(stops_in_turn_, false)) Stop(stop_length_, false);
  return false;
}

void Daemon::Wake() {
  if (!is_running_ || is_waking_) return;
  if (is_in_turn_) {
    is_woken_again_ = true;
    return;
  }
  is_waking_ = true;
  After(world_.random().Between(kMillisecond, 20 * kMillisecond), [this] {
    is_waking_ = false;
    Turn();
  });
}

const DesiredAttempt* Daemon::Wanted(AttemptId id) const {
  if (!desired_.has_value()) return nullptr;
  const auto found = desired_->attempts.find(id);
  return found == desired_->attempts.end() ? nullptr : &found->second;
}

void Daemon::Turn() {
  if (is_in_turn_) return;
  is_in_turn_ = true;
  if (inbox_.has_value()) {
    desired_ = *std::move(inbox_);
    inbox_.reset();
    std::erase_if(begin_tries_, [this](const auto& tries) { return !Wanted(tries.first); });
  }
  Observe();
  const int64_t life = life_;
  TakeFetched();
  if (life != life_) return;
  TakeUploads();
  std::map<AttemptId, agent::LocalAttempt> locals;
  for (const auto& [id, attempt] : attempts_) locals[id] = attempt.local;
  std::vector<Action> actions = agent::Reconcile(desired_, locals, host_.Uptime());
  std::stable_partition(actions.begin(), actions.end(),
                        [](const Action& action) { return action.kind != Action::Kind::kRemove; });
  ActOn({actions.begin(), actions.end()});
}

// A daemon that is stopped among its steps goes on with what it had decided before.
void Daemon::ActOn(std::deque<Action> actions) {
  while (!actions.empty()) {
    const int64_t life = life_;
    if (Breaks()) return;
    if (is_stopped_) {
      deferred_.push_back([this, actions] { ActOn(actions); });
      return;
    }
    const Action action = actions.front();
    actions.pop_front();
    Act(action);
    if (life != life_) return;
  }
  FinishTurn();
}

void Daemon::FinishTurn() {
  Observe();
  is_in_turn_ = false;
  SendReport();
  Upload();
  if (std::exchange(is_woken_again_, false)) Wake();
  bool is_busy = !begin_next_.empty();
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.exit.has_value()) continue;
    const Phase phase = attempt.local.phase;
    is_busy = is_busy || (phase != Phase::kAlive && phase != Phase::kPreparing);
  }
  const Time look = world_.now() + (is_busy ? kLook : kLookIdle);
  if (look_at_ > world_.now() && look_at_ <= look) return;
  look_at_ = look;
  After(look - world_.now(), [this, look] {
    if (look_at_ == look) Wake();
  });
}

void Daemon::TakeFetched() {
  std::map<AttemptId, absl::Status> done;
  for (auto& [id, attempt] : attempts_) {
    if (attempt.fetched.has_value()) done[id] = *std::exchange(attempt.fetched, std::nullopt);
  }
  for (const auto& [id, status] : done) {
    const DesiredAttempt* wanted = Wanted(id);
    if (attempts_.at(id).local.phase != Phase::kPreparing) continue;
    if (wanted == nullptr || wanted->action != DesiredAttempt::Action::kRun) continue;
    const int64_t life = life_;
    if (status.ok()) {
      Assign(id, *wanted);
      if (life != life_) return;
    } else {
      begin_tries_[id] = kBeginTries;
      BeginFailed(id, *wanted, status);
    }
  }
}

void Daemon::TakeUploads() {
  for (auto& [id, attempt] : attempts_) {
    if (!attempt.has_directory) continue;
    attempt.local.committed = attempt.committed;
    attempt.local.drained =
        attempt.exit.has_value() && attempt.checkpoints_done && attempt.streams_done;
  }
}

void Daemon::Act(const Action& action) {
  const DesiredAttempt* wanted = Wanted(action.attempt);
  if (action.kind == Action::Kind::kBegin) {
    TY_CHECK(wanted != nullptr);
    Begin(action.attempt, *wanted);
    return;
  }
  Apply(action, wanted);
}

void Daemon::Begin(AttemptId id, const DesiredAttempt& wanted) {
  const auto next = begin_next_.find(id);
  if (next != begin_next_.end() && host_.Uptime() < next->second) return;
  if (host_.is_disk_full) {
    BeginFailed(id, wanted, error::DiskFull(host_.name));
    return;
  }
  auto dir = std::make_shared<RunDirectory>();
  dir->id = id;
  dir->begun = world_.now();
  host_.directories[id] = dir;
  Attempt attempt;
  attempt.local.fencing_token = wanted.fencing_token;
  attempt.local.phase = Phase::kPreparing;
  attempts_[id] = std::move(attempt);
  if (wanted.resume_from.has_value()) {
    const auto source = ParseCheckpointName(wanted.resume_from->name);
    TY_CHECK_OK(source.status());
    Fetch(id, {source->job, source->step});
  } else {
    Assign(id, wanted);
  }
}

void Daemon::Assign(AttemptId id, const DesiredAttempt& wanted) {
  absl::Status status;
  for (const agent::DesiredRank& rank : wanted.ranks) {
    const HostDevice* device = host_.FindDevice(rank.device);
    if (device == nullptr || device->is_gone) {
      status = MakeError(absl::StatusCode::kNotFound, "DEVICE_NOT_FOUND",
                         absl::StrCat("this worker has no device ", rank.device));
    }
  }
  if (host_.is_disk_full) status = error::DiskFull(host_.name);
  if (!status.ok()) {
    BeginFailed(id, wanted, status);
    return;
  }
  const auto submission = submissions_.find(id);
  TY_CHECK(submission != submissions_.end());
  RunDirectory& dir = *host_.directories.at(id);
  dir.lease.expire_uptime = agent::LeaseOf(*desired_, wanted);
  dir.is_assigned = true;
  dir.fencing_token = wanted.fencing_token;
  dir.world_size = wanted.world_size;
  dir.ranks = wanted.ranks;
  dir.resume_step = wanted.resume_from.has_value() ? wanted.resume_from->step : 0;
  dir.script = static_cast<size_t>(std::stoul(submission->second->spec));
  dir.spans_workers = wanted.spans_workers;
  Attempt& attempt = attempts_.at(id);
  attempt.local.phase = Phase::kPrepared;
  begin_tries_.erase(id);
  begin_next_.erase(id);
  world_.Say(host_.name, "begins ", AttemptName(id), " with ", wanted.ranks.size(), " ranks of ",
             wanted.world_size);
  if (Breaks()) return;
  if (is_stopped_) {
    deferred_.push_back([this, id] {
      if (attempts_.contains(id)) Launch(id, attempts_.at(id));
    });
    return;
  }
  Launch(id, attempt);
}

void Daemon::BeginFailed(AttemptId id, const DesiredAttempt& wanted, const absl::Status& status) {
  int& tries = begin_tries_[id];
  const bool for_good = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  if (!for_good && ++tries < kBeginTries) {
    begin_next_[id] = host_.Uptime() + kBeginRetry;
    host_.directories.erase(id);
    attempts_.erase(id);
    return;
  }
  begin_tries_.erase(id);
  begin_next_.erase(id);
  run_dir::AttemptExit exit;
  const std::string reason = ErrorReason(status);
  exit.outcome =
      reason == "DEVICE_NOT_FOUND" ? run_dir::Outcome::kHardware : run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::ExitCode(exit.outcome);
  exit.reason = reason.empty() ? "START_FAILED" : reason;
  exit.message = std::string(status.message());
  exit.failed_rank = wanted.ranks.front().rank;
  Fail(id, wanted.fencing_token, std::move(exit));
}

void Daemon::SendReport() {
  agent::Report report;
  if (desired_.has_value()) {
    report.desired_serial = desired_->serial;
    report.desired_revision = desired_->revision;
  }
  for (const HostDevice& device : host_.devices) {
    if (device.is_gone) continue;
    agent::Device seen;
    seen.name = device.name;
    seen.type = device.type;
    if (device.is_foreign) {
      seen.health = agent::Device::Health::kUnmanagedUse;
      seen.health_reason = "a process uses it that no job of ours started";
    }
    report.changed_devices.push_back(std::move(seen));
  }
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.local.phase == Phase::kIncomplete) continue;
    agent::ReportedAttempt reported = Describe(id, attempt);
    const DesiredAttempt* wanted = Wanted(id);
    const RunDirectory* dir = host_.FindDirectory(id);
    if (reported.state == agent::ReportedAttempt::State::kStarting && wanted != nullptr &&
        wanted->spans_workers && dir != nullptr) {
      for (const auto& [key, value] : dir->rendezvous) {
        if (!wanted->rendezvous.contains(key)) reported.rendezvous[key] = value;
      }
    }
    report.attempts.push_back(std::move(reported));
  }
  const bool urgent = reported_.has_value() && agent::IsUrgent(*reported_, report);
  const bool is_news = !reported_.has_value() || *reported_ != report;
  if (is_news) reported_ = report;
  SetReport(std::move(report), urgent);
}

}  // namespace trainyard::sim
