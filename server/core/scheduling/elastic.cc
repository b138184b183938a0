// Looks for more devices for elastic jobs, preferring those near the ones that they have.
#include "server/core/scheduling/elastic.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "server/core/scheduling/backfill.h"
#include "server/core/scheduling/host_caps.h"
#include "server/core/scheduling/packing.h"

namespace trainyard::core {
namespace {

bool MayGrow(const RunningJob& job, const std::set<JobId>& stopping, int64_t since_before_us) {
  return job.ranks.size() < static_cast<size_t>(job.demand.count) && job.demand.is_elastic() &&
         stopping.count(job.id) == 0 && job.since_us <= since_before_us;
}

std::vector<const RunningJob*> InOrderOfNeed(const std::map<JobId, RunningJob>& running,
                                             const FairShare& share,
                                             const std::set<JobId>& stopping,
                                             int64_t since_before_us) {
  std::vector<std::tuple<int32_t, ShareKey, ShareKey, JobId>> order;
  for (const auto& [id, job] : running) {
    if (!MayGrow(job, stopping, since_before_us)) continue;
    order.emplace_back(-job.priority, share.OfProject(job.project),
                       share.OfUser({job.project, job.user}), id);
  }
  std::sort(order.begin(), order.end());
  std::vector<const RunningJob*> jobs;
  jobs.reserve(order.size());
  for (const auto& entry : order) jobs.push_back(&running.at(std::get<JobId>(entry)));
  return jobs;
}

// Picks free slots on workers where the job runs already.
std::vector<int32_t> PickNear(const Slots& slots, const Offer& offer, size_t count,
                              const std::vector<int32_t>& own, const GangDemand& gang) {
  const HostCaps caps(slots, offer, gang);
  const bool is_bound = IsBoundByHosts(slots, gang);
  std::map<int32_t, int32_t> left;  // by worker, how many more ranks its host can hold
  for (const int32_t slot : own) {
    const int32_t worker = slots.ShelfOf(slot).worker;
    left[worker] = is_bound ? caps.Of(worker) : slots.size();
  }
  std::vector<int32_t> picked;
  for (const Shelf& shelf : slots.shelves()) {
    const Access access = offer[static_cast<size_t>(shelf.cls)];
    if (access == Access::kNone || shelf.open == 0) continue;
    const auto on_host = left.find(shelf.worker);
    if (on_host == left.end()) continue;
    for (int32_t slot = shelf.begin; slot < shelf.end && picked.size() < count; ++slot) {
      if (!slots.IsFree(slot, access)) continue;
      if (on_host->second-- <= 0) break;
      picked.push_back(slot);
    }
  }
  return picked;
}

}  // namespace

std::vector<std::pair<JobId, std::vector<int32_t>>> GrowElastic(
    Slots& slots, const std::map<JobId, RunningJob>& running, const HeldSlots& held,
    const std::set<JobId>& stopping, const std::vector<bool>& wanted,
    const std::vector<Head>& heads, const FairShare& share, Quotas& quotas,
    int64_t since_before_us) {
  std::vector<std::pair<JobId, std::vector<int32_t>>> growths;
  for (const RunningJob* job : InOrderOfNeed(running, share, stopping, since_before_us)) {
    const auto own = held.find(job->id);
    if (own == held.end() || own->second.size() != job->ranks.size()) continue;
    const Reach reach = slots.ReachOf(job->demand, job->reservations, job->reservation, job->user);
    // A stop when a reservation begins would cost more than growth gives.
    Offer offer = reach.clean;
    for (size_t i = 0; i < offer.size(); ++i) {
      if (!wanted[i]) continue;
      // A head that waits for the end of this job gains if growth makes the job end sooner.
      const int32_t keeper = slots.classes()[i].keeper;
      const bool helps = offer[i] != Access::kNone && keeper >= 0 &&
                         heads[static_cast<size_t>(keeper)].last == job->id;
      offer[i] = helps ? Access::kKept : Access::kNone;
    }
    if (!job->demand.mixed) offer = OfType(slots, offer, slots.ClassOf(own->second.front()).type);
    const int32_t more =
        std::min(job->demand.count - static_cast<int32_t>(job->ranks.size()),
                 quotas.Room(job->user, job->project, slots.MostOn(offer, job->demand.resources)));
    // Devices of another worker would be of no use to a job of one host, and whether there are some
    // here is not known yet.
    if (more <= 0 || job->demand.one_host) continue;
    GangDemand gang{1, more, job->demand.mixed, job->demand.spread, job->demand.resources};
    gang.reservations = &job->reservations;
    std::vector<int32_t> picked =
        PickNear(slots, offer, static_cast<size_t>(more), own->second, gang);
    for (const int32_t slot : picked) slots.SetClaim(slot, job->id);
    const int32_t rest = more - static_cast<int32_t>(picked.size());
    if (rest > 0) {
      gang.most = rest;
      for (const int32_t slot : PickSlots(slots, offer, gang)) {
        slots.SetClaim(slot, job->id);
        picked.push_back(slot);
      }
    }
    if (picked.empty()) continue;
    quotas.Charge(job->user, job->project, static_cast<int32_t>(picked.size()),
                  slots.NeedOnAll(picked, job->demand.resources));
    growths.emplace_back(job->id, std::move(picked));
  }
  return growths;
}

}  // namespace trainyard::core
