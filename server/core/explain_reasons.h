// Why a shape of job does not fit now: the devices counted by what keeps them from it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/core/pass.h"

namespace trainyard::core {

// "12:03 UTC": how a moment of uptime is shown. To the minute, so that a sentence does not change
// with every pass.
std::string TimeOfDay(Now now, int64_t uptime_us);

// "4 devices of type h200 with 80 GiB on workers with disk=ssd".
std::string DemandText(const Demand& demand);

// Keeps what it has found out for a shape. Not thread-safe.
class CapacityReasons {
 public:
  // `state` as the pass has left it, borrowed. Of `pool` only the words on what is set aside are
  // kept.
  CapacityReasons(const Pool& pool, const PassState& state);

  // Empty where the gang fits now. The job's own claims are not looked at.
  std::vector<std::string> WhyNot(const QueuedJob& job) const;

  // Whether the pool as it is can ever hold the gang.
  bool IsFeasible(const QueuedJob& job) const;

 private:
  struct SetAside {
    int32_t cls = 0;
    std::string what;
    int32_t devices = 0;
  };
  struct Tally;

  std::vector<std::string> Find(const QueuedJob& job) const;
  Tally Count(const QueuedJob& job) const;
  void AddMismatches(const Demand& demand, std::vector<std::string>& reasons) const;
  void AddKept(const Tally& tally, int32_t least, std::vector<std::string>& reasons) const;

  const PassState& state_;
  std::vector<SetAside> set_aside_;
  mutable std::map<Shape, std::vector<std::string>> known_;
};

}  // namespace trainyard::core
