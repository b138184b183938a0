// Searches for the victims that lose the least work.
#include "server/core/scheduling/preemption.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "server/core/scheduling/backfill.h"
#include "server/core/scheduling/host_caps.h"
#include "server/core/scheduling/host_supply.h"

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
    for (const Taken& taken : taken_) slots_.SetHolder(taken.slot, taken.holder, taken.held);
  }
  void Free(int32_t slot) {
    const Slot& it = slots_.slot(slot);
    taken_.push_back({slot, it.holder, it.held});
    slots_.SetHolder(slot, JobId{});
  }

 private:
  struct Taken {
    int32_t slot;
    JobId holder;
    HostAmount held;
  };

  Slots& slots_;
  std::vector<Taken> taken_;
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

bool IsCheaper(const Candidate& a, const Candidate& b) {
  // Among equal ones the younger job.
  return std::tie(a.cost_us, b.job) < std::tie(b.cost_us, a.job);
}

size_t SpareOf(const RunningJob& job) {
  const size_t least = static_cast<size_t>(job.demand.least());
  return job.ranks.size() > least ? job.ranks.size() - least : 0;
}

// Takes the cheapest candidates first until `need` slots are there, and then leaves out those that
// turn out unnecessary, the most expensive first. Returns none if all together do not suffice.
std::vector<Candidate> Choose(std::vector<Candidate> candidates, int32_t need) {
  std::sort(candidates.begin(), candidates.end(), IsCheaper);
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

// Chooses as Choose does, for gangs that hosts bound: a candidate may give processors and memory
// alone.
std::vector<Candidate> ChooseByTrial(Slots& slots, const Offer& offer, const GangDemand& gang,
                                     std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end(), IsCheaper);
  const auto fits = [&] { return LargestGang(slots, offer, gang) > 0; };
  std::vector<Candidate> chosen;
  {
    TrialRelease trial(slots);
    for (Candidate& candidate : candidates) {
      if (fits()) break;
      for (const int32_t slot : candidate.gives) trial.Free(slot);
      chosen.push_back(std::move(candidate));
    }
    if (!fits()) return {};
  }
  for (size_t i = chosen.size(); i-- > 0;) {
    TrialRelease others(slots);
    for (size_t other = 0; other < chosen.size(); ++other) {
      if (other == i) continue;
      for (const int32_t slot : chosen[other].gives) others.Free(slot);
    }
    if (fits()) chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return chosen;
}

// Chooses as Choose does, for a gang of one host: the candidates give slots of this worker alone.
// Returns none, too, if the gang would fit there without them. The supply is left as it was.
std::vector<Candidate> ChooseOnHost(HostSupply& supply, int32_t worker, int32_t need,
                                    std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end(), IsCheaper);
  const auto fits = [&] { return supply.RanksOn(worker) >= need; };
  const auto add = [&](const Candidate& candidate) {
    for (const int32_t slot : candidate.gives) supply.Add(slot);
  };
  const auto remove = [&](const Candidate& candidate) {
    for (const int32_t slot : candidate.gives) supply.Remove(slot);
  };
  std::vector<Candidate> chosen;
  for (Candidate& candidate : candidates) {
    if (fits()) break;
    add(candidate);
    chosen.push_back(std::move(candidate));
  }
  const bool suffices = fits();
  for (size_t i = chosen.size(); suffices && i-- > 0;) {
    remove(chosen[i]);
    if (fits()) {
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      add(chosen[i]);
    }
  }
  for (const Candidate& candidate : chosen) remove(candidate);
  if (!suffices) chosen.clear();
  return chosen;
}

int64_t CostOf(const std::vector<Candidate>& victims) {
  int64_t cost_us = 0;
  for (const Candidate& victim : victims) cost_us += victim.cost_us;
  return cost_us;
}

class Search {
 public:
  Search(Slots& slots, const std::map<JobId, RunningJob>& running, const HeldSlots& held,
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
    if (gang_.one_host) return OnOneHost(offer);
    if (IsBoundByHosts(slots_, gang_)) {
      auto chosen = ChooseByTrial(slots_, offer, gang_, Candidates(offer, /*shrink=*/true));
      if (!chosen.empty()) return chosen;
      return ChooseByTrial(slots_, offer, gang_, Candidates(offer, /*shrink=*/false));
    }
    const GangDemand any{1, gang_.least, /*mixed=*/true, false};
    const int32_t need = gang_.least - LargestGang(slots_, offer, any);
    std::vector<Candidate> chosen = Choose(Candidates(offer, /*shrink=*/true), need);
    if (chosen.empty()) chosen = Choose(Candidates(offer, /*shrink=*/false), need);
    return chosen;
  }

 private:
  std::vector<Candidate> Candidates(const Offer& offer, bool shrink) const {
    const std::vector<bool> workers = OfferedWorkers(offer);
    std::vector<Candidate> candidates;
    for (const RunningJob* job : may_go_) {
      AddCandidate(*job, GivesOf(offer, workers, job->id), shrink, candidates);
    }
    return candidates;
  }

  // Devices that are free on one worker do not help on another, so the cheapest worker is chosen.
  std::vector<Candidate> OnOneHost(const Offer& offer) const {
    HostSupply supply(slots_, offer, gang_);
    for (int32_t worker = 0; worker < supply.workers(); ++worker) {
      if (supply.RanksOn(worker) >= gang_.least) return {};  // the gang would not go elsewhere
    }
    for (const bool shrink : {true, false}) {
      std::vector<Candidate> best;
      const auto by_worker = CandidatesByWorker(offer, shrink);
      for (size_t worker = 0; worker < by_worker.size(); ++worker) {
        std::vector<Candidate> chosen =
            ChooseOnHost(supply, static_cast<int32_t>(worker), gang_.least, by_worker[worker]);
        if (chosen.empty() || (!best.empty() && CostOf(best) <= CostOf(chosen))) continue;
        best = std::move(chosen);
      }
      if (!best.empty()) return best;
    }
    return {};
  }

  // Returns for each worker the candidates with what they would give there.
  std::vector<std::vector<Candidate>> CandidatesByWorker(const Offer& offer, bool shrink) const {
    const std::vector<bool> workers = OfferedWorkers(offer);
    std::vector<std::vector<Candidate>> candidates(slots_.hosts().size());
    for (const RunningJob* job : may_go_) {
      std::map<int32_t, std::vector<int32_t>> gives;
      for (const int32_t slot : GivesOf(offer, workers, job->id)) {
        gives[slots_.ShelfOf(slot).worker].push_back(slot);
      }
      for (auto& [worker, of_worker] : gives) {
        AddCandidate(*job, std::move(of_worker), shrink, candidates[static_cast<size_t>(worker)]);
      }
    }
    return candidates;
  }

  static void AddCandidate(const RunningJob& job, std::vector<int32_t> gives, bool shrink,
                           std::vector<Candidate>& candidates) {
    const size_t spare = SpareOf(job);
    // The last ranks are given up; the first stay where they are.
    if (shrink && job.demand.is_elastic() && gives.size() > spare) {
      gives.erase(gives.begin(), gives.end() - static_cast<std::ptrdiff_t>(spare));
    }
    if (gives.empty()) return;
    const int64_t cost_us = job.at_risk_us * static_cast<int64_t>(job.ranks.size());
    candidates.push_back({job.id, cost_us, std::move(gives)});
  }

  // Returns none if hosts do not bound the gang, so that nobody asks.
  std::vector<bool> OfferedWorkers(const Offer& offer) const {
    if (!IsBoundByHosts(slots_, gang_)) return {};
    std::vector<bool> workers(slots_.hosts().size(), false);
    for (const Shelf& shelf : slots_.shelves()) {
      if (offer[static_cast<size_t>(shelf.cls)] != Access::kNone) {
        workers[static_cast<size_t>(shelf.worker)] = true;
      }
    }
    return workers;
  }

  // On hosts that bound the gang, all that a job holds beside offered slots is of use.
  std::vector<int32_t> GivesOf(const Offer& offer, const std::vector<bool>& workers,
                               JobId job) const {
    if (!IsBoundByHosts(slots_, gang_)) return UsefulOf(slots_, offer, held_, job);
    std::vector<int32_t> gives;
    const auto found = held_.find(job);
    if (found == held_.end()) return gives;
    for (const int32_t slot : found->second) {
      if (slots_.slot(slot).claim == JobId{} &&
          workers[static_cast<size_t>(slots_.ShelfOf(slot).worker)]) {
        gives.push_back(slot);
      }
    }
    return gives;
  }

  Slots& slots_;
  const HeldSlots& held_;
  const GangDemand& gang_;
  std::vector<const RunningJob*> may_go_;
};

Nomination MakeNomination(const std::map<JobId, RunningJob>& running, const HeldSlots& held,
                          const std::vector<Candidate>& victims, std::vector<int32_t> picked,
                          bool is_bound) {
  Nomination nomination;
  std::set<int32_t> taken(picked.begin(), picked.end());
  if (is_bound) {  // none was chosen without need
    for (const Candidate& victim : victims) taken.insert(victim.gives.begin(), victim.gives.end());
  }
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
    if (!IsBoundByHosts(slots, gang)) {
      for (const int32_t slot : UsefulOf(slots, offer, held, id)) trial.Free(slot);
    } else if (const auto stops = held.find(id); stops != held.end()) {
      for (const int32_t slot : stops->second) {
        if (slots.slot(slot).claim == JobId{}) trial.Free(slot);
      }
    }
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
  // Nobody is stopped for a gang that would not fit then. The server goes on, whatever was wrong.
  if (picked.empty()) return std::nullopt;
  return MakeNomination(running, held, best, std::move(picked), IsBoundByHosts(slots, gang));
}

}  // namespace trainyard::core
