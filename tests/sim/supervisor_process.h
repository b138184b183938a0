// The process that owns the ranks of an attempt on a host: the pure core of worker/supervisor,
// driven in the order of supervisor.cc.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "tests/sim/machine.h"
#include "tests/sim/run_directory.h"
#include "tests/sim/trainers.h"
#include "tests/sim/world.h"
#include "worker/supervisor/supervisor_core.h"

namespace trainyard::sim {

class SupervisorProcess {
 public:
  SupervisorProcess(World& world, Trainers& trainers, Machine& machine, AttemptId attempt);

  // Takes the lock, and holds it until it ends. Returns false if there is nothing to do.
  bool Begin();
  void RankExited(const supervisor::RankEnd& end);
  // Something may have happened.
  void Wake();
  // Returns since when somebody has wanted the ranks to end, or 0. This is for the checkers.
  Time stop_asked() const { return stop_asked_; }
  Time stop_grace() const { return stop_grace_; }

 private:
  void ReadControl();
  void EndUnstarted(const run_dir::RankResult& result);
  void StartRanks();
  void Loop();
  bool WriteExits();

  World& world_;
  Trainers& trainers_;
  Machine& machine_;
  const AttemptId attempt_;
  const std::shared_ptr<RunDirectory> dir_;
  std::unique_ptr<supervisor::SupervisorCore> core_;
  std::optional<run_dir::StopRequest> seen_stop_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool is_waking_ = false;
  Time timer_ = 0;
  Time stop_asked_ = 0;
  Time stop_grace_ = 0;
};

}  // namespace trainyard::sim
