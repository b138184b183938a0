// Joins jobs into sets by the pilots that they share.
#include "server/provision/lots.h"

#include <algorithm>

namespace trainyard::provision {
namespace {

struct Group {
  std::set<JobId> jobs;
  std::set<int32_t> pilots;  // of the provider by which it was grouped
};

std::set<int32_t> PilotsOf(const Wanted& wanted, JobId job) {
  std::set<int32_t> pilots;
  const auto found = wanted.workers.find(job);
  if (found == wanted.workers.end()) return pilots;
  for (const int32_t worker : found->second) pilots.insert(worker / std::max(wanted.nodes, 1));
  return pilots;
}

// Returns the groups of those jobs that are in no group yet.
std::vector<Group> GroupsOf(const Wanted& wanted, const std::set<JobId>& known) {
  std::vector<Group> groups;
  for (const auto& [job, workers] : wanted.workers) {
    if (known.contains(job)) continue;
    Group joined{{job}, PilotsOf(wanted, job)};
    for (auto group = groups.begin(); group != groups.end();) {
      const bool shares =
          std::any_of(group->pilots.begin(), group->pilots.end(),
                      [&joined](int32_t pilot) { return joined.pilots.contains(pilot); });
      if (!shares) {
        ++group;
        continue;
      }
      joined.jobs.insert(group->jobs.begin(), group->jobs.end());
      joined.pilots.insert(group->pilots.begin(), group->pilots.end());
      group = groups.erase(group);
    }
    groups.push_back(std::move(joined));
  }
  return groups;
}

}  // namespace

std::vector<Lot> LotsOf(const std::vector<Wanted>& wanted) {
  std::vector<Group> groups;
  std::set<JobId> known;
  for (const Wanted& one : wanted) {
    for (Group& group : GroupsOf(one, known)) {
      known.insert(group.jobs.begin(), group.jobs.end());
      groups.push_back(std::move(group));
    }
  }
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return *a.jobs.begin() < *b.jobs.begin(); });
  std::vector<Lot> lots;
  for (const Group& group : groups) {
    Lot lot;
    for (const Wanted& one : wanted) {
      std::set<int32_t> pilots;
      bool takes_all = true;
      for (const JobId job : group.jobs) {
        const std::set<int32_t> of_job = PilotsOf(one, job);
        takes_all = takes_all && !of_job.empty();
        pilots.insert(of_job.begin(), of_job.end());
      }
      if (takes_all) lot.pilots[one.provider] = static_cast<int32_t>(pilots.size());
    }
    lots.push_back(std::move(lot));
  }
  return lots;
}

}  // namespace trainyard::provision
