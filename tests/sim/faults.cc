// Each kind of fault comes by itself, at the mean interval that the seed has drawn.
#include "tests/sim/faults.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::sim {
namespace {

constexpr Time kHalfOpenMax = kMinute;

}  // namespace

Faults::Faults(World& world, const Options& options, Transport& transport, Server& server,
               Disk& disk, Trainers& trainers, std::vector<std::unique_ptr<Host>>& hosts)
    : world_(world),
      options_(options),
      transport_(transport),
      server_(server),
      disk_(disk),
      trainers_(trainers),
      hosts_(hosts),
      damage_random_(options.seed) {}

void Faults::Begin() {
  server_wall_offset_ = server_.clock().wall_offset;
  const FaultRates& rates = options_.faults;
  Every(rates.server_crash, [this] { CrashServer(false); });
  Every(rates.server_power_loss, [this] { CrashServer(true); });
  Every(rates.server_full_disk, [this] { FillServerDisk(); });
  Every(rates.worker_crash, [this] { CrashWorker(); });
  Every(rates.worker_hang, [this] { HangWorker(); });
  Every(rates.host_reboot, [this] { RebootHost(); });
  Every(rates.supervisor_crash, [this] { CrashSupervisor(); });
  Every(rates.partition, [this] { Partition(); });
  Every(rates.flapping, [this] { Flap(AnyHost().number, 10); });
  Every(rates.deafness, [this] { Deafen(); });
  Every(rates.clock_jump, [this] { JumpClock(); });
  Every(rates.device_fails, [this] { BreakDevice(); });
  Every(rates.foreign_use, [this] { UseDevice(); });
  Every(rates.rank_crash, [this] { CrashRank(); });
  Every(rates.rank_hang, [this] { HangRank(); });
  Every(rates.host_full_disk, [this] { FillHostDisk(); });
  Every(rates.worker_leave, [this] { LeaveWorker(); });
  AwaitDamage();
}

void Faults::Every(Time mean, std::function<void()> fault) {
  if (mean == 0) return;
  world_.After(world_.random().Around(mean), [this, mean, fault = std::move(fault)] {
    if (is_over_) return;
    Note();
    fault();
    Every(mean, fault);
  });
}

Host& Faults::AnyHost() {
  return *hosts_[static_cast<size_t>(world_.random().Below(static_cast<int64_t>(hosts_.size())))];
}

Time Faults::Away() {
  const int64_t dice = world_.random().Below(100);
  if (dice < 50) return Short();
  if (dice < 85) return world_.random().Around(2 * kMinute);
  return world_.random().Around(15 * kMinute);
}

void Faults::CrashServer(bool power) {
  const CrashPoint points[] = {CrashPoint::kBeforeCommit, CrashPoint::kInCommit,
                               CrashPoint::kBeforeAnswers, CrashPoint::kAmongAnswers};
  const int64_t dice = world_.random().Below(10);
  const Time away = Away();
  if (dice == 0) {
    disk_.FailNextSync();
  } else if (dice < 7) {
    server_.CrashAt(points[world_.random().Below(4)], away);
  } else {
    server_.Crash(power);
    world_.After(away, [this] { server_.Start(); });
  }
}

void Faults::FillServerDisk() {
  world_.Say("faults", "the server's disk is full");
  disk_.SetFull(true);
  const Time length = Away();
  Note(length);
  world_.After(length, [this] {
    disk_.SetFull(false);
    world_.Say("faults", "the server's disk has room again");
    Note();
  });
}

void Faults::CrashWorker() {
  Host& host = AnyHost();
  if (world_.random().Chance(500)) {
    host.daemon->KillInTurn();
    return;
  }
  host.daemon->Kill();
  const Time away = Away();
  Note(away);
  // Now and then the driver shows one device less to the next life.
  if (host.devices.size() > 1 && world_.random().Chance(100)) {
    MachineDevice& device = host.devices.back();
    device.is_gone = true;
    world_.Say("faults", device.name, " of ", host.name, " is gone");
  }
  world_.After(away, [&host] { host.daemon->Start(); });
}

void Faults::LeaveWorker() {
  // Nobody drains a worker in less than 20 s, which the checks know.
  const Time patience = world_.random().Between(35, 150) * kSecond;
  const Time away = Away();
  Note(patience + away);
  AnyHost().daemon->Leave(patience * 6 / 10, patience, away);
}

void Faults::HangWorker() {
  const Time length = Away();
  Note(length);
  AnyHost().daemon->Stop(length, /*in_turn=*/world_.random().Chance(500));
}

void Faults::RebootHost() {
  Host& host = AnyHost();
  host.PowerOff();
  if (world_.random().Chance(300)) {
    world_.After(world_.random().Around(kMinute), [this, &host] { DeclareLost(host); });
  }
  const Time away = Away();
  Note(away);
  world_.After(away, [this, &host] {
    host.PowerOn();
    Note();
  });
}

// Somebody has seen that the host is off, and reports it.
void Faults::DeclareLost(Host& host) {
  if (host.is_on || !server_.is_up()) return;
  world_.Say("operator", "vouches that ", host.name, " is off");
  server_.Post(core::DeclareWorkerLost{host.name, "user:op", "its host is off"},
               [](const absl::StatusOr<core::Reply>&) {});
}

void Faults::CrashSupervisor() {
  Host& host = AnyHost();
  for (const auto& [id, dir] : host.directories) {
    if (host.SupervisorOf(id) == nullptr || world_.random().Chance(300)) continue;
    host.CrashSupervisor(id);
    return;
  }
}

void Faults::Partition() {
  // Now and then all hosts lose the server.
  const bool all = world_.random().Chance(150);
  const int64_t ways = world_.random().Between(1, 3);
  const Time length = Away();
  const int one = AnyHost().number;
  for (const auto& host : hosts_) {
    if (!all && host->number != one) continue;
    Transport::Link& link = transport_.link(host->number);
    link.cut_to_server = (ways & 1) != 0;
    link.cut_from_server = (ways & 2) != 0;
    world_.Say("faults", host->name, " is cut off",
               ways == 1   ? " to the server"
               : ways == 2 ? " from the server"
                           : "");
    // If one direction of a connection is dead, both ends soon give it up.
    if (length > kHalfOpenMax) {
      world_.After(kHalfOpenMax, [&link] {
        const bool is_cut = link.cut_to_server || link.cut_from_server;
        link.cut_to_server = link.cut_from_server = is_cut;
      });
    }
    Note(length);
    world_.After(length, [this, &link, name = host->name] {
      link.cut_to_server = link.cut_from_server = false;
      world_.Say("faults", name, " is connected again");
      Note();
    });
  }
}

void Faults::Flap(int link, int times) {
  if (is_over_ || times == 0) return;
  Note();
  Transport::Link& state = transport_.link(link);
  state.cut_to_server = state.cut_from_server = times % 2 == 0;
  world_.Say("faults", "the link of host ", link, times % 2 == 0 ? " breaks" : " holds");
  world_.After(world_.random().Around(8 * kSecond), [this, link, times] { Flap(link, times - 1); });
}

// Makes a host deaf or mute for a while. A deaf host is heard by the server all the time, and
// believes that the server is away.
void Faults::Deafen() {
  Host& host = AnyHost();
  Transport::Link& link = transport_.link(host.number);
  bool& is_dead = world_.random().Chance(800) ? link.is_deaf : link.is_mute;
  if (is_dead) return;
  is_dead = true;
  world_.Say("faults", host.name, &is_dead == &link.is_deaf ? " hears nothing" : " is not heard");
  const Time length = Away();
  Note(length);
  world_.After(length, [this, &is_dead, name = host.name] {
    if (!is_dead) return;
    is_dead = false;
    world_.Say("faults", name, " hears and is heard again");
    Note();
  });
}

void Faults::JumpClock() {
  Random& random = world_.random();
  const int64_t jump = random.Between(-24, 24) * kHour + random.Between(-60, 60) * kSecond;
  if (random.Chance(600)) {
    server_.clock().wall_offset += jump;
    world_.Say("faults", "the server's wall clock jumps by ", jump / kSecond, " s");
  } else {
    Host& host = AnyHost();
    host.clock.wall_offset += jump;
    world_.Say("faults", "the wall clock of ", host.name, " jumps by ", jump / kSecond, " s");
  }
}

void Faults::BreakDevice() {
  Host& host = AnyHost();
  MachineDevice& device = host.devices[static_cast<size_t>(
      world_.random().Below(static_cast<int64_t>(host.devices.size())))];
  device.is_bad = true;
  world_.Say("faults", device.name, " of ", host.name, " breaks");
  trainers_.DeviceFails(host.number, device.name);
  const Time length = Away() * 4;
  Note(length);
  world_.After(length, [&device] { device.is_bad = false; });
}

void Faults::UseDevice() {
  Host& host = AnyHost();
  MachineDevice& device = host.devices[static_cast<size_t>(
      world_.random().Below(static_cast<int64_t>(host.devices.size())))];
  device.is_foreign = true;
  world_.Say("faults", "somebody else computes on ", device.name, " of ", host.name);
  host.daemon->Wake();
  const Time length = Away();
  Note(length);
  world_.After(length, [this, &device, &host] {
    device.is_foreign = false;
    host.daemon->Wake();
    Note();
  });
}

void Faults::CrashRank() {
  const auto& processes = trainers_.processes();
  if (processes.empty()) return;
  auto it = processes.begin();
  std::advance(it, world_.random().Below(static_cast<int64_t>(processes.size())));
  trainers_.CrashRank(it->first);
}

void Faults::HangRank() {
  const auto& gangs = trainers_.gangs();
  if (gangs.empty()) return;
  auto it = gangs.begin();
  std::advance(it, world_.random().Below(static_cast<int64_t>(gangs.size())));
  trainers_.Hang(it->first, world_.random().Around(3 * kMinute));
}

void Faults::AwaitDamage() {
  if (options_.faults.checkpoint_damage == 0) return;
  world_.After(damage_random_.Around(options_.faults.checkpoint_damage), [this] {
    if (is_over_) return;
    Note();
    DamageCheckpoints();
    AwaitDamage();
  });
}

// The server's disk damages some of the checkpoints that are still needed.
void Faults::DamageCheckpoints() {
  const core::Snapshot& state = disk_.state();
  for (const auto& [id, checkpoint] : state.checkpoints) {
    const auto job = state.jobs.find(id.job);
    if (job == state.jobs.end() || core::job_fsm::IsFinal(job->second.state)) continue;
    if (damage_random_.Chance(500)) server_.DamageCheckpoint(id);
  }
}

void Faults::FillHostDisk() {
  Host& host = AnyHost();
  host.is_disk_full = true;
  world_.Say("faults", "the disk of ", host.name, " is full");
  world_.After(Short() * 3, [this, &host] {
    host.is_disk_full = false;
    host.daemon->Wake();
    for (const auto& [id, dir] : host.directories) host.Touch(id);
    world_.Say("faults", "the disk of ", host.name, " has room again");
    Note();
  });
}

void Faults::Repair() {
  is_over_ = true;
  Note();
  transport_.set_calm();
  disk_.SetFull(false);
  server_.CrashAt(CrashPoint::kNone, 0);
  for (const auto& host : hosts_) {
    Transport::Link& link = transport_.link(host->number);
    link.cut_to_server = link.cut_from_server = link.is_deaf = link.is_mute = false;
    host->is_disk_full = false;
    host->PowerOn();
    bool was_gone = false;
    for (MachineDevice& device : host->devices) {
      was_gone = was_gone || device.is_gone;
      device.is_bad = device.is_foreign = device.is_gone = false;
    }
    // A device that came back is found at the next start of the daemon.
    if (was_gone) host->daemon->Kill();
    host->daemon->Start();
    host->daemon->Wake();
    for (const auto& [id, dir] : host->directories) host->Touch(id);
  }
  server_.clock().wall_offset = server_wall_offset_;
  server_.Start();
}

}  // namespace trainyard::sim
