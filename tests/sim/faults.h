// Faults are what goes wrong from outside, at the rates of the seed, until it is over and
// everything is repaired.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/daemon.h"
#include "tests/sim/host.h"
#include "tests/sim/options.h"
#include "tests/sim/server.h"
#include "tests/sim/trainers.h"
#include "tests/sim/transport.h"

namespace trainyard::sim {

class Faults {
 public:
  Faults(World& world, const Options& options, Transport& transport, Server& server, Disk& disk,
         Trainers& trainers, std::vector<std::unique_ptr<Host>>& hosts);

  void Begin();
  // Ends all of it.
  void Repair();
  // Returns the time until which something outside of the server's control is wrong.
  Time last() const { return last_; }
  void Note(Time length = 0) { last_ = std::max(last_, world_.now() + length); }

 private:
  void Every(Time mean, std::function<void()> fault);
  Host& AnyHost();
  Time Short() { return world_.random().Around(20 * kSecond); }
  // Mostly short, sometimes longer than every deadline.
  Time Away();

  void CrashServer(bool power);
  void FillServerDisk();
  void CrashWorker();
  void LeaveWorker();
  void HangWorker();
  void RebootHost();
  void DeclareLost(Host& host);
  void CrashSupervisor();
  void Partition();
  void Flap(int link, int times);
  void Deafen();
  void JumpClock();
  void BreakDevice();
  void UseDevice();
  void CrashRank();
  void HangRank();
  void FillHostDisk();
  void AwaitDamage();
  void DamageCheckpoints();

  World& world_;
  const Options& options_;
  Transport& transport_;
  Server& server_;
  Disk& disk_;
  Trainers& trainers_;
  std::vector<std::unique_ptr<Host>>& hosts_;
  // Damage has chances of its own, so that it leaves the stories alone in which nobody meets it.
  Random damage_random_;
  bool is_over_ = false;
  Time last_ = 0;
  int64_t server_wall_offset_ = 0;  // before anybody moved it
};

}  // namespace trainyard::sim
