// Implements the lives and the turns of the daemon.
#include "tests/sim/daemon.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::sim {
namespace {

using agent::Phase;

// The daemon of a real host looks more often than this. Here nothing changes between two events,
// except deadlines.
constexpr Time kLook = 2 * kSecond;
constexpr Time kLookIdle = 20 * kSecond;

}  // namespace

Daemon::Daemon(World& world, const Options& options, Transport& transport, Server& server,
               Machine& machine, Trainers& trainers)
    : world_(world),
      options_(options),
      transport_(transport),
      server_(server),
      machine_(machine),
      trainers_(trainers),
      clock_(world, machine),
      rng_(world),
      dirs_(world, machine, trainers) {
  dirs_.on_fetch = [this](AttemptId id, const agent::ResumeSource& source) {
    process_->fetches[id] = source;
    Fetch(id);
  };
  dirs_.on_cancel_fetch = [this](AttemptId id) { process_->fetches.erase(id); };
  dirs_.wake_after = [this](Time delay) { After(delay, [this] { Wake(); }); };
  dirs_.on_remove = [this](const RunDirectory& dir) { Removed(dir); };
}

void Daemon::Start() {
  if (is_running() || !machine_.is_on) return;
  ++life_;
  process_ = std::make_unique<Process>(dirs_, Devices(), clock_, rng_,
                                       absl::Microseconds(options_.report_interval));
  world_.Say(machine_.name, "the daemon starts");
  process_->core.Adopt();
  Wake();
}

void Daemon::Kill() {
  if (!is_running()) return;
  world_.Say(machine_.name, "the daemon dies");
  ++life_;
  is_stopped_ = stops_in_turn_ = dies_in_turn_ = false;
  is_waking_ = is_in_turn_ = is_woken_again_ = false;
  deferred_.clear();
  look_at_ = 0;
  if (process_->call != nullptr) process_->call->Cancel();
  process_.reset();
}

void Daemon::Leave(Time within, Time patience, Time away) {
  if (!is_running() || process_->leave_within > absl::ZeroDuration()) return;
  world_.Say(machine_.name, "the daemon is told to end within ", patience / kSecond, " s");
  process_->leave_within = absl::Microseconds(within);
  process_->away = away;
  world_.After(patience, [this, life = life_, away] {
    if (life != life_) return;
    Kill();
    world_.After(away, [this] { Start(); });
  });
  Wake();
}

// A daemon that is told to end does so once its jobs have gone.
void Daemon::EndIfEmpty() {
  if (!process_->gets_nothing_more || !process_->core.attempts().empty()) return;
  const Time away = process_->away;
  world_.Say(machine_.name, "the daemon is empty");
  Kill();
  world_.After(away, [this] { Start(); });
}

void Daemon::Stop(Time how_long, bool in_turn) {
  if (!is_running() || is_stopped_) return;
  stop_length_ = how_long;
  stops_in_turn_ = in_turn;
  if (in_turn) return;
  is_stopped_ = true;
  world_.Say(machine_.name, "the daemon is stopped for ", how_long / kSecond, " s");
  world_.After(how_long, [this, life = life_] {
    if (life != life_) return;
    is_stopped_ = false;
    last_heard_ = world_.now();
    world_.Say(machine_.name, "the daemon goes on");
    std::vector<std::function<void()>> steps;
    steps.swap(deferred_);
    for (const auto& step : steps) {
      if (life != life_ || !is_running()) return;  // an earlier step has ended it
      Guard(step)();
    }
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

// Applies a fault that was meant for the middle of a turn. Returns true if the daemon has died.
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
  if (!is_running() || is_waking_) return;
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

void Daemon::Turn() {
  if (is_in_turn_) return;
  is_in_turn_ = true;
  std::vector<AttemptId> ids;
  for (const auto& [id, attempt] : process_->core.attempts()) ids.push_back(id);
  for (const AttemptId id : ids) {
    auto checkpoints = process_->checkpoints.ProgressOf(id);
    const bool is_all_sent = checkpoints.done && process_->logs_done.contains(id);
    process_->core.Uploaded(id, std::move(checkpoints.committed), is_all_sent);
  }
  process_->core.BeginTurn();
  DoSteps();
}

// A daemon that is stopped among its steps continues with what it had decided before.
void Daemon::DoSteps() {
  bool is_over = false;
  while (!is_over) {
    if (Breaks()) return;
    if (is_stopped_) {
      deferred_.push_back([this] { DoSteps(); });
      return;
    }
    is_over = !process_->core.Step();
  }
  FinishTurn();
}

void Daemon::FinishTurn() {
  agent::Report report = process_->core.EndTurn();
  is_in_turn_ = false;
  SetTargets();
  SendReport(std::move(report));
  PumpCheckpoints();
  PumpLogs();
  if (std::exchange(is_woken_again_, false)) Wake();
  EndIfEmpty();
  if (!is_running()) return;
  bool is_busy = process_->core.is_retrying();
  for (const auto& [id, attempt] : process_->core.attempts()) {
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

void Daemon::SetTargets() {
  std::vector<agent::UploadTarget>& targets = process_->targets;
  targets.clear();
  for (const auto& [id, attempt] : process_->core.attempts()) {
    if (!attempt.has_directory || attempt.local.phase == Phase::kPreparing) continue;
    agent::UploadTarget& target = targets.emplace_back();
    target.id = id;
    target.fencing_token = attempt.local.fencing_token;
    target.checkpoints = attempt.local.checkpoints;
    target.exited = attempt.exit.has_value();
    for (const agent::DesiredRank& rank : attempt.ranks) target.ranks.push_back(rank.rank);
  }
  if (process_->checkpoints.SetTargets(targets)) Wake();
}

std::vector<agent::Device> Daemon::Devices() const {
  std::vector<agent::Device> devices;
  for (const MachineDevice& device : machine_.devices) {
    if (device.is_gone) continue;
    agent::Device seen;
    seen.name = device.name;
    seen.type = device.type;
    seen.bf16 = device.type != "cpu";
    if (device.is_foreign) {
      seen.health = agent::Device::Health::kUnmanagedUse;
      seen.health_reason = "a process uses it that no job of ours started";
    }
    devices.push_back(std::move(seen));
  }
  return devices;
}

void Daemon::SendReport(agent::Report report) {
  std::optional<agent::Report>& reported = process_->reported;
  report.changed_devices = Devices();
  report.leave_within = process_->leave_within;
  if (reported.has_value() && *reported == report) return;
  const bool is_urgent = reported.has_value() && agent::IsUrgent(*reported, report);
  reported = report;
  process_->link.SetReport(std::move(report), is_urgent);
  // An answer that has come already is taken first.
  std::shared_ptr<PendingCall>& call = process_->call;
  if (process_->link.is_interrupted() && call != nullptr && process_->is_sync && !call->ended()) {
    call->Cancel();
    call.reset();
  }
  Pump();
}

}  // namespace trainyard::sim
