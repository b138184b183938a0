// Simulates gangs: they gather, train, write checkpoints and end, as the script of their job and
// the faults demand.
#include "tests/sim/trainers.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::sim {
namespace {

using run_dir::Outcome;
using supervisor::RankEnd;

// worker/trainer gives a gang this long to connect, and a collective this long to end.
constexpr Time kGatherTimeout = 5 * kMinute;
constexpr Time kCollectiveTimeout = 30 * kSecond;

RankEnd Ended(int rank, Outcome outcome, std::string reason, std::string message = "") {
  RankEnd end;
  end.rank = rank;
  end.exit_code = run_dir::ExitCode(outcome);
  end.result = run_dir::RankResult{
      .outcome = outcome, .reason = std::move(reason), .message = std::move(message)};
  return end;
}

std::string KeyOf(int rank) {
  return absl::StrCat("rank-", rank);
}

}  // namespace

size_t Trainers::AddScript(Script script) {
  scripts_.push_back(script);
  return scripts_.size() - 1;
}

Gang* Trainers::Find(GangKey key) {
  const auto found = gangs_.find(key);
  return found == gangs_.end() ? nullptr : &found->second;
}

int64_t Trainers::StepOf(const Gang& gang) const {
  if (gang.phase != Gang::Phase::kTraining || gang.hangs) return gang.step;
  const Script& script = scripts_[gang.script];
  const Time trained = std::max<Time>(world_.now() - gang.since, 0);  // it may wait
  return std::min(script.total_steps, gang.step + trained / script.step_time);
}

std::vector<int64_t> Trainers::PidsOf(int host, AttemptId attempt) const {
  std::vector<int64_t> pids;
  for (const auto& [pid, process] : processes_) {
    if (process.start.host == host && process.start.attempt == attempt) pids.push_back(pid);
  }
  return pids;
}

run_dir::Progress Trainers::ProgressOf(const RankProcess& process) const {
  run_dir::Progress progress;
  const auto found = gangs_.find({process.start.attempt, process.start.token});
  if (found == gangs_.end()) return progress;
  const Gang& gang = found->second;
  const Script& script = scripts_[gang.script];
  progress.step = StepOf(gang);
  progress.total_steps = script.total_steps;
  progress.samples_per_s = 1e6 / static_cast<double>(script.step_time);
  if (gang.phase != Gang::Phase::kGathering) progress.state = run_dir::Progress::State::kRunning;
  if (script.end == Script::End::kOdd) {
    progress.step = progress.step % 3 == 0 ? -7 : progress.step * 1'000'000'007;
    progress.total_steps = progress.step % 2 == 0 ? 0 : -1;
    progress.samples_per_s = progress.step % 5 == 0 ? 1e-300 : -1.0;
  }
  return progress;
}

void Trainers::Start(const RankStart& start) {
  RankProcess process;
  process.start = start;
  process.pid = next_pid_++;
  process.device_is_bad = is_device_bad(start.host, start.device);
  const GangKey key{start.attempt, start.token};
  auto [found, is_new] = gangs_.try_emplace(key);
  Gang& gang = found->second;
  if (is_new) {
    gang.attempt = start.attempt;
    gang.token = start.token;
    gang.world_size = start.world_size;
    gang.script = start.script;
    gang.step = start.resume_step;
    gang.saved = start.resume_step > 0 ? start.resume_step : -1;
    gang.begun = world_.now();
    gang.partial_since = world_.now();
    world_.After(kGatherTimeout, [this, key, turn = gang.turn] {
      Gang* late = Find(key);
      if (late == nullptr || late->turn != turn || late->phase != Gang::Phase::kGathering) return;
      for (const auto& [rank, pid] : late->pids) {
        Exit(pid, kMillisecond, Ended(rank, Outcome::kTransient, "RENDEZVOUS_TIMEOUT"));
      }
    });
  }
  gang.pids[start.rank] = process.pid;
  processes_[process.pid] = process;
  on_start(processes_[process.pid]);
  if (process.device_is_bad) {
    Exit(process.pid, world_.random().Between(1, 20) * kSecond,
         Ended(start.rank, Outcome::kHardware, "XID_79", "the GPU has fallen off the bus"));
  }
  if (RunDirectory* dir = directory_of(start.host, start.attempt); dir != nullptr) {
    dir->rendezvous[KeyOf(start.rank)] = absl::StrCat("address of ", start.rank);
  }
  TryGather(key);
}

void Trainers::TryGather(GangKey key) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->phase != Gang::Phase::kGathering || gang->since != 0) return;
  if (static_cast<int>(gang->pids.size()) < gang->world_size) return;
  gang->partial_since = 0;
  for (const auto& [rank, pid] : gang->pids) {
    const RankProcess& process = processes_.at(pid);
    if (process.is_ending) return;
    const RunDirectory* dir = directory_of(process.start.host, gang->attempt);
    for (int other = 0; other < gang->world_size; ++other) {
      if (dir == nullptr || dir->rendezvous.count(KeyOf(other)) == 0) return;
    }
  }
  gang->since = world_.now();
  world_.After(world_.random().Around(scripts_[gang->script].load_time),
               [this, key] { BeginTraining(key); });
}

void Trainers::BeginTraining(GangKey key) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->phase != Gang::Phase::kGathering) return;
  if (static_cast<int>(gang->pids.size()) < gang->world_size) return;
  gang->phase = Gang::Phase::kTraining;
  gang->since = world_.now();
  gang->training_begun = world_.now();
  const RankProcess& zero = processes_.at(gang->pids.at(0));
  if (const RunDirectory* dir = directory_of(zero.start.host, gang->attempt); dir != nullptr) {
    gang->pace.emplace(dir->failures, dir->run_time, /*cost=*/absl::Milliseconds(1));
  }
  world_.Say("trainers", AttemptName(gang->attempt), " trains from step ", gang->step, " on ",
             gang->world_size, " ranks");
  for (const auto& [rank, pid] : gang->pids) {
    on_change(processes_.at(pid).start.host, gang->attempt);
    if (processes_.at(pid).has_term) {
      StopTraining(key, false);
      return;
    }
  }
  Plan(*gang);
}

// Sets the next moment at which something happens by itself.
void Trainers::Plan(Gang& gang) {
  const Script& script = scripts_[gang.script];
  int64_t next = script.total_steps;
  if (script.checkpoint_every > 0) {
    next = std::min(next, (gang.step / script.checkpoint_every + 1) * script.checkpoint_every);
  }
  if (script.automatic && gang.pace.has_value()) {
    const absl::Duration trained = absl::Microseconds(world_.now() - gang.training_begun);
    const Time distance = absl::ToInt64Microseconds(gang.pace->Distance(trained));
    next = std::min(next, gang.step + std::max<int64_t>(distance / script.step_time, 1));
  }
  const bool fails = script.end != Script::End::kGood && script.end != Script::End::kOdd;
  if (fails && script.fail_step > gang.step) next = std::min(next, script.fail_step);
  const GangKey key{gang.attempt, gang.token};
  const int64_t turn = ++gang.turn;
  const Time takes = std::max<int64_t>(next - gang.step, 0) * script.step_time;
  world_.At(gang.since + takes, [this, key, turn, next] { Reach(key, turn, next); });
}

void Trainers::Reach(GangKey key, int64_t turn, int64_t step) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->turn != turn || gang->phase != Gang::Phase::kTraining) return;
  const Script& script = scripts_[gang->script];
  gang->step = std::max(step, gang->step);
  gang->since = world_.now();
  const bool fails = script.end != Script::End::kGood && script.end != Script::End::kOdd;
  if (fails && step == script.fail_step && step < script.total_steps) {
    const bool again = script.end == Script::End::kPoison ||
                       script.end == Script::End::kUserError ||
                       script.end == Script::End::kHidden || world_.random().Chance(600);
    if (again) {
      Fail(*gang);
      return;
    }
  }
  if (step >= script.total_steps) {
    StopTraining(key, /*finished=*/true);
    return;
  }
  BeginWrite(*gang, /*last=*/false);
  gang->since += script.wait_time;
  if (script.automatic && gang->pace.has_value()) {
    gang->pace->Add(absl::Microseconds(script.wait_time), absl::Microseconds(script.write_time));
  }
  Plan(*gang);
}

void Trainers::Fail(Gang& gang) {
  const Script& script = scripts_[gang.script];
  const int rank = script.fail_rank % gang.world_size;
  const auto found = gang.pids.find(rank);
  if (found == gang.pids.end()) return;
  const std::string at = absl::StrCat("at step ", gang.step);
  world_.Say("trainers", AttemptName(gang.attempt), " rank ", rank, " fails ", at);
  switch (script.end) {
    case Script::End::kHang:
      Hang({gang.attempt, gang.token}, world_.random().Between(1, 10) * kMinute);
      return;
    case Script::End::kUserError:
      Exit(found->second, kMillisecond, Ended(rank, Outcome::kUserError, "LOSS_NOT_FINITE", at));
      return;
    case Script::End::kHidden: {
      // The exit code of the trainer contradicts its result.
      RankEnd end = Ended(rank, Outcome::kUserError, "LOSS_NOT_FINITE", at);
      end.exit_code = run_dir::kExitSucceeded;
      Exit(found->second, kMillisecond, end);
      return;
    }
    case Script::End::kSignal: {
      RankEnd end;
      end.rank = rank;
      end.signal = SIGSEGV;
      Exit(found->second, kMillisecond, end);
      return;
    }
    default:
      Exit(found->second, kMillisecond, Ended(rank, Outcome::kTransient, "DATA_NOT_READ", at));
  }
}

// This part is about checkpoints. Rank 0 writes them while the training continues.

void Trainers::BeginWrite(Gang& gang, bool last) {
  if (gang.pids.count(0) == 0) return;
  if (gang.writes) {
    gang.write_again = true;
    return;
  }
  gang.writes = true;
  const GangKey key{gang.attempt, gang.token};
  const RankProcess& zero = processes_.at(gang.pids.at(0));
  if (const RunDirectory* dir = directory_of(zero.start.host, gang.attempt)) {
    gang.answered_request = dir->checkpoint_request;
  }
  world_.After(world_.random().Around(scripts_[gang.script].write_time),
               [this, key, step = StepOf(gang), last] { EndWrite(key, step, last); });
}

void Trainers::EndWrite(GangKey key, int64_t step, bool last) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->pids.count(0) == 0) return;
  gang->writes = false;
  const RankProcess& zero = processes_.at(gang->pids.at(0));
  const int host = zero.start.host;
  RunDirectory* dir = directory_of(host, gang->attempt);
  const bool is_written = dir != nullptr && !is_disk_full(host);
  if (is_written) {
    dir->checkpoints.insert(step);
    gang->saved = std::max(gang->saved, step);
    on_change(host, gang->attempt);
  }
  const bool again = std::exchange(gang->write_again, false);
  if (gang->phase == Gang::Phase::kTraining) {
    if (again) BeginWrite(*gang, false);
    return;
  }
  if (gang->phase != Gang::Phase::kEnding) return;
  if (!last && gang->saved != gang->step) {
    BeginWrite(*gang, true);
    return;
  }
  const bool saved = gang->saved == gang->step;
  const RankEnd end = !saved
                          ? Ended(0, Outcome::kTransient, "DISK_FULL", "the last checkpoint")
                          : Ended(0, gang->finished ? Outcome::kSucceeded : Outcome::kStopped, "");
  Exit(zero.pid, kMillisecond, end);
}

void Trainers::CheckpointAsked(GangKey key) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->phase != Gang::Phase::kTraining || gang->hangs) return;
  // At the next step.
  world_.After(scripts_[gang->script].step_time, [this, key] {
    Gang* asked = Find(key);
    if (asked == nullptr || asked->phase != Gang::Phase::kTraining || asked->hangs) return;
    BeginWrite(*asked, false);
  });
}

// The ends.

// All ranks stop at the same step; rank 0 writes the last checkpoint.
void Trainers::StopTraining(GangKey key, bool finished) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->phase != Gang::Phase::kTraining || gang->hangs) return;
  gang->step = StepOf(*gang);
  gang->phase = Gang::Phase::kEnding;
  gang->finished = finished;
  ++gang->turn;
  world_.Say("trainers", AttemptName(gang->attempt), finished ? " is through" : " stops",
             " at step ", gang->step);
  ExitAll(*gang, /*but=*/0);
  if (gang->pids.count(0) == 0) return;
  if (gang->saved == gang->step && !gang->writes) {
    Exit(gang->pids.at(0), kMillisecond,
         Ended(0, finished ? Outcome::kSucceeded : Outcome::kStopped, ""));
  } else if (!gang->writes) {
    BeginWrite(*gang, /*last=*/true);
  }
}

void Trainers::ExitAll(Gang& gang, int but) {
  for (const auto& [rank, pid] : gang.pids) {
    if (rank == but) continue;
    Exit(pid, world_.random().Below(100 * kMillisecond),
         Ended(rank, gang.finished ? Outcome::kSucceeded : Outcome::kStopped, ""));
  }
}

void Trainers::Exit(int64_t pid, Time delay, RankEnd end) {
  world_.After(delay, [this, pid, end = std::move(end)] {
    const auto found = processes_.find(pid);
    if (found == processes_.end()) return;
    Gang* gang = Find({found->second.start.attempt, found->second.start.token});
    // A process that is stuck does not reach its end.
    if (gang != nullptr && gang->hangs && end.signal == 0 && end.exit_code != 75) return;
    Gone(pid, end);
  });
}

void Trainers::Gone(int64_t pid, const RankEnd& end) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  const RankProcess process = found->second;
  const GangKey key{process.start.attempt, process.start.token};
  if (RunDirectory* dir = directory_of(process.start.host, process.start.attempt)) {
    dir->progress[process.start.rank] = ProgressOf(process);
  }
  processes_.erase(found);
  if (Gang* gang = Find(key)) {
    gang->pids.erase(process.start.rank);
    const bool is_alone = gang->pids.empty();
    const bool is_ending = gang->phase == Gang::Phase::kEnding;
    if (!is_alone && !is_ending) PeersNotice(*gang);
    if (!is_alone && gang->partial_since == 0) gang->partial_since = world_.now();
    on_exit(process, end);
    if (is_alone) gangs_.erase(key);
    return;
  }
  on_exit(process, end);
}

void Trainers::PeersNotice(Gang& gang) {
  if (gang.phase == Gang::Phase::kGathering && gang.since == 0) return;  // not connected yet
  gang.phase = Gang::Phase::kOver;
  gang.hangs = false;
  ++gang.turn;
  for (const auto& [rank, pid] : gang.pids) {
    Exit(pid, world_.random().Between(100 * kMillisecond, 4 * kSecond),
         Ended(rank, Outcome::kTransient, "PEER_LOST", "a peer is gone"));
  }
}

void Trainers::Send(int64_t pid, Signal signal) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  RankProcess& process = found->second;
  const GangKey key{process.start.attempt, process.start.token};
  if (signal == Signal::kKill) {
    RankEnd end;
    end.rank = process.start.rank;
    end.signal = SIGKILL;
    // Allocating much memory takes time.
    const Time dies = world_.random().Chance(100) ? 3 * kSecond : 50 * kMillisecond;
    world_.After(world_.random().Between(1, dies), [this, pid, end] { Gone(pid, end); });
    return;
  }
  if (process.has_term) return;
  process.has_term = true;
  Gang* gang = Find(key);
  if (gang == nullptr || gang->phase == Gang::Phase::kGathering) {
    if (gang == nullptr || gang->since == 0) {
      Exit(pid, kMillisecond, Ended(process.start.rank, Outcome::kStopped, ""));
    }
    return;  // while it loads, the first step finds the signal
  }
  world_.After(scripts_[gang->script].step_time, [this, key] { StopTraining(key, false); });
}

void Trainers::KillHost(int host) {
  std::vector<int64_t> pids;
  for (const auto& [pid, process] : processes_) {
    if (process.start.host == host) pids.push_back(pid);
  }
  for (const int64_t pid : pids) {
    RankEnd end;
    end.rank = processes_.at(pid).start.rank;
    end.signal = SIGKILL;
    Gone(pid, end);
  }
}

// Faults.

void Trainers::CrashRank(int64_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  RankEnd end;
  end.rank = found->second.start.rank;
  end.signal = world_.random().Chance(500) ? SIGKILL : SIGSEGV;
  world_.Say("faults", AttemptName(found->second.start.attempt), " rank ", end.rank,
             " dies of signal ", end.signal);
  Gone(pid, end);
}

void Trainers::Hang(GangKey key, Time how_long) {
  Gang* gang = Find(key);
  if (gang == nullptr || gang->phase != Gang::Phase::kTraining || gang->hangs) return;
  gang->step = StepOf(*gang);
  gang->since = world_.now();
  gang->hangs = true;
  const int64_t turn = ++gang->turn;
  world_.Say("trainers", AttemptName(gang->attempt), " hangs at step ", gang->step);
  if (gang->world_size > 1) {
    world_.After(kCollectiveTimeout, [this, key, turn] {
      Gang* stuck = Find(key);
      if (stuck == nullptr || stuck->turn != turn) return;
      for (const auto& [rank, pid] : stuck->pids) {
        Exit(pid, kMillisecond, Ended(rank, Outcome::kTransient, "COLLECTIVE_TIMEOUT"));
      }
    });
    return;
  }
  world_.After(how_long, [this, key, turn] {
    Gang* stuck = Find(key);
    if (stuck == nullptr || stuck->turn != turn) return;
    stuck->hangs = false;
    stuck->since = world_.now();
    for (const auto& [rank, pid] : stuck->pids) {
      if (!processes_.at(pid).has_term) continue;
      StopTraining(key, false);
      return;
    }
    Plan(*stuck);
  });
}

void Trainers::DeviceFails(int host, const std::string& device) {
  for (const auto& [pid, process] : processes_) {
    if (process.start.host != host || process.start.device != device) continue;
    Exit(pid, world_.random().Between(1, 5) * kSecond,
         Ended(process.start.rank, Outcome::kHardware, "XID_79", "the GPU has fallen off the bus"));
  }
}

}  // namespace trainyard::sim
