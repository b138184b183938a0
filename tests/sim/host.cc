// Implements what survives the end of a daemon, of a supervisor, and of the power.
#include "tests/sim/host.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::sim {
namespace {

// The kernel by itself writes data that is as old as this to the disk.
constexpr Time kWriteback = 40 * kSecond;

}  // namespace

Host::Host(World& world, Trainers& trainers, int host_number, std::string host_name)
    : Machine(world, host_number, std::move(host_name)), trainers_(trainers) {}

Host::~Host() = default;

SupervisorProcess* Host::SupervisorOf(AttemptId attempt) {
  const auto found = supervisors_.find(attempt);
  return found == supervisors_.end() ? nullptr : found->second.get();
}

void Host::LaunchSupervisor(AttemptId attempt) {
  // A busy machine takes longer than the daemon's patience.
  const Time takes = world_.random().Chance(20) ? world_.random().Between(1, 9) * kSecond
                                                : world_.random().Between(5, 100) * kMillisecond;
  world_.After(takes, [this, attempt, boot = boots_] {
    if (boot != boots_ || !is_on || FindDirectory(attempt) == nullptr) return;
    if (SupervisorOf(attempt) != nullptr) return;  // it holds the lock
    auto& supervisor = supervisors_[attempt];
    supervisor = std::make_unique<SupervisorProcess>(world_, trainers_, *this, attempt);
    if (!supervisor->Begin()) supervisors_.erase(attempt);
    Touch(attempt);
  });
}

void Host::SupervisorEnded(AttemptId attempt) {
  supervisors_.erase(attempt);
  if (RunDirectory* dir = FindDirectory(attempt)) {
    dir->is_locked = false;
    dir->EndLog(world_.now());
  }
  Touch(attempt);
}

void Host::CrashSupervisor(AttemptId attempt) {
  if (SupervisorOf(attempt) == nullptr) return;
  world_.Say("faults", "the supervisor of ", AttemptName(attempt), " on ", name, " is killed");
  // Its ranks die with it (PR_SET_PDEATHSIG).
  for (const int64_t pid : trainers_.PidsOf(number, attempt)) {
    trainers_.Send(pid, Trainers::Signal::kKill);
  }
  SupervisorEnded(attempt);
}

void Host::Touch(AttemptId attempt) {
  if (SupervisorProcess* supervisor = SupervisorOf(attempt)) supervisor->Wake();
  if (daemon != nullptr) daemon->Wake();
}

void Host::PowerOff() {
  if (!is_on) return;
  world_.Say("faults", name, " loses power");
  is_on = false;
  ++boots_;
  supervisors_.clear();
  trainers_.KillHost(number);
  for (auto& [id, dir] : directories) {
    dir->is_locked = false;
    dir->EndLog(world_.now());
    LoseUnsynced(*dir);
  }
  daemon->Kill();
}

// Only the exit record and the request to stop are synced (worker/run_dir): of what was written not
// long before the power went, any part may be gone.
void Host::LoseUnsynced(RunDirectory& dir) {
  Random& random = world_.random();
  if (dir.exit.has_value() || world_.now() - dir.begun > kWriteback) return;
  if (random.Chance(300)) dir.is_assigned = false;
  if (random.Chance(300)) dir.has_supervisor_record = false;
  if (random.Chance(300)) dir.lease = {};
  if (random.Chance(300)) dir.checkpoint_request = 0;
  if (random.Chance(300)) dir.rendezvous.clear();
  if (random.Chance(300)) dir.progress.clear();
  dir.rank_exits.clear();
}

void Host::PowerOn() {
  if (is_on) return;
  is_on = true;
  clock.boot = world_.now();
  clock.uptime_at_boot = world_.random().Between(1, 60) * kSecond;
  world_.Say("faults", name, " is on again");
  daemon->Start();
}

}  // namespace trainyard::sim
