// A machine of the pool as the processes on it see it: its clock, its disk, its devices, and the
// calls by which they reach each other. tests/sim/host.h has the processes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/core/lifecycle/submission.h"
#include "tests/sim/options.h"
#include "tests/sim/run_directory.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

struct MachineDevice {
  std::string name;
  std::string type;
  bool is_bad = false;      // whatever computes on it fails
  bool is_foreign = false;  // somebody else's process uses it
  bool is_gone = false;     // the driver no longer shows it
};

class Machine {
 public:
  Machine(World& world, int machine_number, std::string machine_name)
      : number(machine_number), name(std::move(machine_name)), world_(world) {}
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;

  const int number;
  const std::string name;
  HostClock clock;
  std::vector<MachineDevice> devices;
  core::HostAmount resources;  // what jobs may hold; empty if the worker does not tell
  bool is_disk_full = false;
  bool is_on = true;
  std::map<AttemptId, std::shared_ptr<RunDirectory>> directories;

  absl::Duration Uptime() const { return absl::Microseconds(clock.Uptime(world_.now())); }
  MachineDevice* FindDevice(const std::string& device);
  RunDirectory* FindDirectory(AttemptId attempt);

  virtual void LaunchSupervisor(AttemptId attempt) = 0;
  // The supervisor calls this at its end, and is destroyed by it.
  virtual void SupervisorEnded(AttemptId attempt) = 0;
  // Files of the attempt have changed: wakes its supervisor and the daemon.
  virtual void Touch(AttemptId attempt) = 0;

 protected:
  World& world_;
};

}  // namespace trainyard::sim
