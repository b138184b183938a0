// Searches for the victims that lose the least work.
#include "server/core/scheduling/preemption.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "server/core/scheduling/backfill.h"

namespace trainyard::core {
namespace {

// A job that may be stopped, and what that would free.
struct Candidate {
  JobId job;
  int64_t cost_us = 0;         // work lost, as device time since its last checkpoint
  std::vector<int32_t> gives;  // slots that the preemptor can use
};

// Frees slots on trial to see what would fit. They are held again when the object is destroyed.
class TrialRelease {
 public:
  explicit TrialRelease(Slots& slots) : slots_(slots) {}
  TrialRelease(const TrialRelease&) = delete;
  TrialRelease& operator=(const TrialRelease&) = delete;
  ~TrialRelease() {
    for (const auto& [slot, holder] : taken_) slots_.SetHolder(slot, holder);
  }
  void Free(int32_t slot) {
    taken_.emplace_back(slot, slots_.slot(slot).holder);
    slots_.SetHolder(slot, JobId{});
  }

 private:
  Slots& slots_;
  std::vector<std::pair<int32_t, JobId>> taken_;
};

bool IsUseful(const Slots& slots, const Offer& offer, int32_t slot) {
  const Slot& it = slots.slot(slot);
  return it.offered && !it.kept && it.claim == JobId{} &&
         offer[static_cast<size_t>(slots.ShelfOf(slot).cls)] != Access::kNone;
}

std::vector<int32_t> UsefulOf(const Slots& slots, const Offer& offer, const HeldSlots& held,
                              JobId job) {
  std::vector<int32_t> useful;
  const auto found = held.find(job);
  if (found == held.end()) return useful;
  for (const int32_t slot : found->second) {
    if (IsUseful(slots, offer, slot)) useful.push_back(slot);
  }
  return useful;
}

size_t SpareOf(const RunningJob& job) {
  const size_t least = static_cast<size_t>(job.demand.least());
  return job.ranks.size() > least ? job.ranks.size() - least : 0;
}

// Takes the cheapest candidates first until `need` slots are there, and then leaves out those that
// turn out unnecessary, the most expensive first. Returns none if all together do not suffice.
std::vector<Candidate> Choose(std::vector<Candidate> candidates, int32_t need) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    // Among equal ones the younger job.
    return std::tie(a.cost_us, b.job) < std::tie(b.cost_us, a.job);
  });
  std::vector<Candidate> chosen;
  int32_t given = 0;
  for (Candidate& candidate : candidates) {
    if (given >= need) break;
    given += static_cast<int32_t>(candidate.gives.size());
    chosen.push_back(std::move(candidate));
  }
  if (given < need) return {};
  for (size_t i = chosen.size(); i-- > 0;) {
    const auto gives = static_cast<int32_t>(chosen[i].gives.size());
    if (given - gives < need) continue;
    given -= gives;
    chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return chosen;
}

class Search {
 public:
  Search(const Slots& slots, const std::map<JobId, RunningJob>& running, const HeldSlots& held,
         const std::set<JobId>& stopping, int32_t priority, bool is_head, const GangDemand& gang)
      : slots_(slots), held_(held), gang_(gang) {
    for (const auto& [id, job] : running) {
      const bool gives_way =
          is_head && job.guest ? job.priority <= priority : job.priority < priority;
      if (job.may_preempt && gives_way && stopping.count(id) == 0) {
        may_go_.push_back(&job);
      }
    }
  }

  bool has_candidates() const { return !may_go_.empty(); }

  // First tries to shrink elastic jobs only so far that they can continue. If that does not
  // suffice, stops them.
  std::vector<Candidate> On(const Offer& offer) const {
    const GangDemand any{1, gang_.least, /*mixed=*/true, false};
    const int32_t need = gang_.least - LargestGang(slots_, offer, any);
    std::vector<Candidate> chosen = Choose(Candidates(offer, /*shrink=*/true), need);
    if (chosen.empty()) chosen = Choose(Candidates(offer, /*shrink=*/false), need);
    return chosen;
  }

 private:
  std::vector<Candidate> Candidates(const Offer& offer, bool shrink) const {
    std::vector<Candidate> candidates;
    for (const RunningJob* job : may_go_) {
      Candidate candidate{job->id, 0, UsefulOf(slots_, offer, held_, job->id)};
      if (shrink && job->demand.is_elastic()) {
        const size_t spare = SpareOf(*job);
        // The last ranks are given up; the first stay where they are.
        if (candidate.gives.size() > spare) {
          candidate.gives.erase(candidate.gives.begin(),
                                candidate.gives.end() - static_cast<std::ptrdiff_t>(spare));
        }
      }
      if (candidate.gives.empty()) continue;
      candidate.cost_us = job->at_risk_us * static_cast<int64_t>(job->ranks.size());
      candidates.push_back(std::move(candidate));
    }
    return candidates;
  }

  const Slots& slots_;
  const HeldSlots& held_;
  const GangDemand& gang_;
  std::vector<const RunningJob*> may_go_;
};

int64_t CostOf(const std::vector<Candidate>& victims) {
  int64_t cost_us = 0;
  for (const Candidate& victim : victims) cost_us += victim.cost_us;
  return cost_us;
}

Nomination MakeNomination(const std::map<JobId, RunningJob>& running, const HeldSlots& held,
                          const std::vector<Candidate>& victims, std::vector<int32_t> picked) {
  Nomination nomination;
  const std::set<int32_t> taken(picked.begin(), picked.end());
  for (const Candidate& victim : victims) {
    const RunningJob& job = running.at(victim.job);
    std::vector<int32_t> rest;
    for (const int32_t slot : held.at(victim.job)) {
      if (taken.count(slot) == 0) rest.push_back(slot);
    }
    if (rest.size() == held.at(victim.job).size()) continue;  // none of its slots was picked
    if (!job.demand.is_elastic() || rest.size() < static_cast<size_t>(job.demand.least())) {
      rest.clear();
    }
    nomination.victims.emplace(victim.job, std::move(rest));
  }
  nomination.slots = std::move(picked);
  return nomination;
}

}  // namespace

std::optional<Nomination> Nominate(Slots& slots, const std::map<JobId, RunningJob>& running,
                                   const HeldSlots& held, const std::set<JobId>& stopping,
                                   const QueuedJob& job, const Offer& offer, const GangDemand& gang,
                                   bool is_head) {
  const Search search(slots, running, held, stopping, job.priority, is_head, gang);
  if (!search.has_candidates()) return std::nullopt;
  TrialRelease trial(slots);
  for (const JobId& id : stopping) {
    for (const int32_t slot : UsefulOf(slots, offer, held, id)) trial.Free(slot);
  }
  // The job only has to wait for those that stop already.
  if (LargestGang(slots, offer, gang) > 0) return std::nullopt;
  std::vector<Candidate> best;
  Offer best_offer;
  const size_t types = gang.mixed ? 1 : slots.types().size();
  for (size_t type = 0; type < types; ++type) {
    Offer on = gang.mixed ? offer : OfType(slots, offer, static_cast<int32_t>(type));
    std::vector<Candidate> victims = search.On(on);
    if (victims.empty() || (!best.empty() && CostOf(best) <= CostOf(victims))) continue;
    best = std::move(victims);
    best_offer = std::move(on);
  }
  if (best.empty()) return std::nullopt;
  for (const Candidate& victim : best) {
    for (const int32_t slot : victim.gives) trial.Free(slot);
  }
  std::vector<int32_t> picked = PickSlots(slots, best_offer, gang);
  TY_CHECK(!picked.empty());
  return MakeNomination(running, held, best, std::move(picked));
}

}  // namespace trainyard::core
