// Why a shape of job does not fit now: the devices counted by what keeps them from it.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/core/scheduling/pass.h"

namespace trainyard::core {

// "12:03 UTC": a moment of uptime, as people read it. It is rounded to the minute, so that a
// sentence does not change with every pass.
std::string TimeOfDay(Now now, int64_t uptime_us);

// "4 devices of type h200 with 80 GiB on workers with disk=ssd".
std::string DemandText(const Demand& demand);

// Keeps what it has found out for a shape. Not thread-safe.
class CapacityReasons {
 public:
  // Borrows `state`, which is as the pass has left it. Keeps nothing of `pool` but the reasons why
  // devices are set aside.
  CapacityReasons(const Pool& pool, const PassState& state);

  // Empty where the gang fits now. The job's own claims are not looked at.
  std::vector<std::string> WhyNot(const QueuedJob& job) const;

  // True if the pool as it is could hold the gang if all of it were free.
  bool IsFeasible(const QueuedJob& job) const;

 private:
  struct SetAside {
    int32_t cls = 0;
    std::string what;
    int32_t devices = 0;
  };
  // The devices that suit a job by what they are.
  struct Tally {
    int32_t total = 0;
    int32_t free = 0;                             // for it, at once
    std::vector<std::pair<JobId, int32_t>> held;  // by holder, once each
    std::map<JobId, int32_t> claimed;             // free, but kept for a nominated or resized job
    std::map<int32_t, int32_t> kept;              // free, but kept for a head, by its index
    std::map<std::string, int32_t> reserved;  // free, but of a reservation that is not the job's
    std::map<std::string, int32_t> set_aside;
  };

  using Tallies = std::map<int32_t, Tally>;  // by type; -1: all types together

  std::vector<std::string> Find(const QueuedJob& job) const;
  Tallies Count(const Reach& reach, const Offer& now, bool by_type) const;
  // The tally of the type that comes closest to holding the gang.
  const Tally& TallyFor(const QueuedJob& job) const;
  void AddMismatches(const Demand& demand, std::vector<std::string>& reasons) const;
  void AddKept(const Tally& tally, int32_t least, std::vector<std::string>& reasons) const;

  const PassState& state_;
  std::vector<SetAside> set_aside_;
  mutable std::map<Shape, std::vector<std::string>> known_;
  // Many shapes look at the same devices.
  mutable std::map<std::tuple<const Reach*, Offer, bool>, Tallies> tallies_;
};

}  // namespace trainyard::core
