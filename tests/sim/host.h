// Simulates a host of the pool: a machine with its supervisors and the daemon on it. Run
// directories and supervisors outlive the daemon. Only run directories outlive a power loss of the
// host.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/sim/daemon.h"
#include "tests/sim/machine.h"
#include "tests/sim/supervisor_process.h"
#include "tests/sim/trainers.h"

namespace trainyard::sim {

class Host : public Machine {
 public:
  Host(World& world, Trainers& trainers, int number, std::string name);
  ~Host() override;

  void LaunchSupervisor(AttemptId attempt) override;
  SupervisorProcess* SupervisorOf(AttemptId attempt);
  void SupervisorEnded(AttemptId attempt) override;
  void CrashSupervisor(AttemptId attempt);

  void Touch(AttemptId attempt) override;

  std::unique_ptr<Daemon> daemon;

  int64_t boots() const { return boots_; }
  void PowerOff();
  void PowerOn();

 private:
  void LoseUnsynced(RunDirectory& dir);

  Trainers& trainers_;
  std::map<AttemptId, std::unique_ptr<SupervisorProcess>> supervisors_;
  int64_t boots_ = 0;
};

}  // namespace trainyard::sim
