// Runs the real core in the order of worker/supervisor/supervisor.cc.
#include "tests/sim/supervisor_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::sim {
namespace {

using run_dir::Outcome;
using supervisor::SignalToSend;

constexpr Time kWatchedInterval = kSecond;
constexpr Time kWriteRetry = 5 * kSecond;

}  // namespace

SupervisorProcess::SupervisorProcess(World& world, Trainers& trainers, Machine& machine,
                                     AttemptId attempt)
    : world_(world),
      trainers_(trainers),
      machine_(machine),
      attempt_(attempt),
      dir_(machine.directories.at(attempt)) {}

bool SupervisorProcess::Begin() {
  // As in Supervise(), an attempt runs only once.
  if (dir_->is_locked || dir_->exit.has_value() || dir_->has_supervisor_record ||
      !dir_->is_assigned) {
    return false;
  }
  dir_->is_locked = true;
  std::vector<int> ranks;
  for (const agent::DesiredRank& rank : dir_->ranks) ranks.push_back(rank.rank);
  std::sort(ranks.begin(), ranks.end());
  core_ = std::make_unique<supervisor::SupervisorCore>(std::move(ranks));
  ReadControl();
  if (core_->Tick(machine_.Uptime()) != SignalToSend::kNone) {
    EndUnstarted({.outcome = Outcome::kStopped});
  } else if (machine_.is_disk_full) {
    EndUnstarted({.outcome = Outcome::kTransient, .reason = "DISK_FULL"});
  } else {
    StartRanks();
  }
  Wake();
  return true;
}

void SupervisorProcess::StartRanks() {
  dir_->has_supervisor_record = true;
  dir_->log_begun = world_.now();
  world_.Say(machine_.name, "starts ranks of ", AttemptName(attempt_));
  for (const agent::DesiredRank& rank : dir_->ranks) {
    dir_->progress[rank.rank] = {};
    RankStart start;
    start.host = machine_.number;
    start.device = rank.device;
    start.attempt = attempt_;
    start.token = dir_->fencing_token;
    start.rank = rank.rank;
    start.world_size = dir_->world_size;
    start.resume_step = dir_->resume_step;
    start.script = dir_->script;
    trainers_.Start(start);
  }
}

void SupervisorProcess::EndUnstarted(const run_dir::RankResult& result) {
  for (const agent::DesiredRank& rank : dir_->ranks) {
    core_->RankEnded(machine_.Uptime(), {.rank = rank.rank,
                                         .exit_code = run_dir::ExitCode(result.outcome),
                                         .result = result,
                                         .end_time_us = 0});
  }
  core_->GroupGone();
}

void SupervisorProcess::ReadControl() {
  core_->LeaseSeen(dir_->lease);
  if (dir_->stop.has_value() && dir_->stop != seen_stop_) {
    seen_stop_ = dir_->stop;
    core_->StopAsked(machine_.Uptime(), *dir_->stop);
    if (stop_asked_ == 0) {
      stop_asked_ = world_.now();
      stop_grace_ = absl::ToInt64Microseconds(dir_->stop->grace);
    }
  }
}

void SupervisorProcess::RankExited(const supervisor::RankEnd& end) {
  core_->RankEnded(machine_.Uptime(), end);
  if (core_->all_ranks_ended()) core_->GroupGone();
  Wake();
}

void SupervisorProcess::Wake() {
  if (is_waking_) return;
  is_waking_ = true;
  world_.After(world_.random().Between(100, 10 * kMillisecond),
               [this, alive = std::weak_ptr<bool>(alive_)] {
                 if (alive.expired()) return;  // it is gone
                 is_waking_ = false;
                 Loop();
               });
}

void SupervisorProcess::Loop() {
  ReadControl();
  const SignalToSend signal = core_->Tick(machine_.Uptime());
  if (signal != SignalToSend::kNone) {
    world_.Say(machine_.name, signal == SignalToSend::kTerm ? "SIGTERM to " : "SIGKILL to ",
               AttemptName(attempt_));
    for (const int64_t pid : trainers_.PidsOf(machine_.number, attempt_)) {
      trainers_.Send(
          pid, signal == SignalToSend::kTerm ? Trainers::Signal::kTerm : Trainers::Signal::kKill);
    }
  }
  if (WriteExits()) {
    machine_.SupervisorEnded(attempt_);
    return;
  }
  // Sleeps until something is due. A lost event of the file watch costs a second.
  Time next = world_.now() + 30 * kWatchedInterval;
  const absl::Duration deadline = core_->NextDeadline();
  if (deadline != absl::InfiniteDuration()) {
    next = std::min(next, std::max(machine_.clock.WhenUptime(absl::ToInt64Microseconds(deadline)),
                                   world_.now() + kMillisecond));
  }
  if (core_->gone()) next = std::min(next, world_.now() + kWriteRetry);
  if (timer_ > world_.now() && timer_ <= next) return;
  timer_ = next;
  world_.At(next, [this, next, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired() || timer_ != next || is_waking_) return;
    Loop();
  });
}

bool SupervisorProcess::WriteExits() {
  if (machine_.is_disk_full) return false;
  for (const run_dir::RankExit& exit : core_->RankExits()) dir_->rank_exits[exit.rank] = exit;
  if (!core_->gone()) return false;
  dir_->exit = core_->Exit(0);
  world_.Say(machine_.name, AttemptName(attempt_),
             " has ended here: ", run_dir::OutcomeName(dir_->exit->outcome), " ",
             dir_->exit->reason);
  return true;
}

}  // namespace trainyard::sim
