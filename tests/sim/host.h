// Simulates a host of the pool: its disk, its devices, its supervisors, and the daemon on it. Run
// directories and supervisors outlive the daemon. Only run directories outlive a power loss of the
// host.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/options.h"
#include "tests/sim/run_directory.h"
#include "tests/sim/supervisor_process.h"
#include "tests/sim/trainers.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

class Daemon;

struct HostDevice {
  std::string name;
  std::string type;
  bool is_bad = false;      // whatever computes on it fails
  bool is_foreign = false;  // somebody else's process uses it
  bool is_gone = false;     // the driver no longer shows it
};

class Host {
 public:
  Host(World& world, Trainers& trainers, int number, std::string name);
  ~Host();
  Host(const Host&) = delete;

  const int number;
  const std::string name;
  HostClock clock;
  std::vector<HostDevice> devices;
  bool is_disk_full = false;
  bool is_on = true;
  std::map<AttemptId, std::shared_ptr<RunDirectory>> directories;

  absl::Duration Uptime() const { return absl::Microseconds(clock.Uptime(world_.now())); }
  HostDevice* FindDevice(const std::string& device);
  RunDirectory* FindDirectory(AttemptId attempt);

  // Supervisors.
  void LaunchSupervisor(AttemptId attempt);
  SupervisorProcess* SupervisorOf(AttemptId attempt);
  void SupervisorEnded(AttemptId attempt);
  void CrashSupervisor(AttemptId attempt);

  // Files of the attempt have changed: wakes its supervisor and the daemon.
  void Touch(AttemptId attempt);

  // The daemon.
  std::unique_ptr<Daemon> daemon;

  int64_t boots() const { return boots_; }
  void PowerOff();
  void PowerOn();

 private:
  void LoseUnsynced(RunDirectory& dir);

  World& world_;
  Trainers& trainers_;
  std::map<AttemptId, std::unique_ptr<SupervisorProcess>> supervisors_;
  int64_t boots_ = 0;
};

}  // namespace trainyard::sim
