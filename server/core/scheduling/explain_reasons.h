// Finds out why a shape of job does not fit now, by counting the devices by what makes them
// unavailable.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/core/scheduling/pass.h"

namespace trainyard::core {

// Returns a moment of uptime as people read it: "12:03 UTC". It is rounded to the minute, so that a
// sentence does not change with every pass.
std::string TimeOfDay(Now now, int64_t uptime_us);

// Returns a text such as "4 devices of type h200 with 80 GiB on workers with disk=ssd".
std::string DemandText(const Demand& demand);

// Returns a text such as "8 cpus and 64 GiB of memory"; empty if nothing is asked for.
std::string ResourcesText(const HostAmount& resources);

// Returns a text such as "the data set cifar10 of data.digest xxh3-128:12".
std::string DatasetText(const Demand& demand);

// Finds reasons, and remembers those of each shape. The class is not thread-safe.
class CapacityReasons {
 public:
  // Borrows `state`, which is as the pass has left it. Of `pool` it keeps only the reasons why
  // devices are set aside.
  CapacityReasons(const Pool& pool, const PassState& state);

  // Returns the reasons. There are none if the gang fits now. The job's own claims are ignored.
  std::vector<std::string> WhyNot(const QueuedJob& job) const;

  // Returns true if the pool could hold the gang if all of it were free.
  bool IsFeasible(const QueuedJob& job) const;

 private:
  struct SetAside {
    int32_t cls = 0;
    std::string what;
    int32_t devices = 0;
  };
  // A worker that does not run everybody's jobs.
  struct UsersWorker {
    std::string name;
    WorkerUsers users;
    std::map<int32_t, int32_t> devices;  // by class
  };
  // Counts the devices that suit a job by what they are.
  struct Tally {
    int32_t total = 0;
    int32_t free = 0;                             // free for the job, at once
    std::vector<std::pair<JobId, int32_t>> held;  // by holder; each holder appears once
    // Free, but claimed for a nominated or resized job.
    std::map<JobId, int32_t> claimed;
    std::map<int32_t, int32_t> kept;  // free, but kept for a head, by its index
    // Free, but part of a reservation that is not the job's.
    std::map<std::string, int32_t> reserved;
    std::map<std::string, int32_t> set_aside;
  };

  using Tallies = std::map<int32_t, Tally>;  // by type; -1 stands for all types together

  std::vector<std::string> Find(const QueuedJob& job) const;
  // Returns the reasons of a job for which enough devices are free, or that needs none.
  std::vector<std::string> FindOnHosts(const QueuedJob& job, const std::string& needs) const;
  Tallies Count(const Reach& reach, const Offer& now, bool by_type) const;
  // Returns the tally of the type that comes closest to holding the gang.
  const Tally& TallyFor(const QueuedJob& job) const;
  void AddMismatches(const QueuedJob& job, std::vector<std::string>& reasons) const;
  // Adds the hosts with free devices that have too little left for a rank.
  void AddHosts(const QueuedJob& job, std::vector<std::string>& reasons) const;
  void AddOtherUsers(const QueuedJob& job, std::vector<std::string>& reasons) const;
  void AddKept(const Tally& tally, int32_t least, std::vector<std::string>& reasons) const;

  const PassState& state_;
  std::vector<SetAside> set_aside_;
  std::vector<std::string> workers_;  // the names, in order
  std::vector<UsersWorker> users_workers_;
  mutable std::map<Shape, std::vector<std::string>> known_;
  // A cache, because many shapes look at the same devices.
  mutable std::map<std::tuple<const Reach*, Offer, bool>, Tallies> tallies_;
};

}  // namespace trainyard::core
