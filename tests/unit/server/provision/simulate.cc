// One seed gives one history of about half a day: hours with faults and then calm ones, in which
// everything has to come right.
#include "tests/unit/server/provision/simulate.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/provision/core/demand.h"
#include "server/provision/core/step.h"
#include "tests/unit/server/provision/model_cluster.h"

namespace trainyard::provision {
namespace {

constexpr int64_t kTurnUs = 5 * kSecondUs;
constexpr int64_t kListEveryUs = 30 * kSecondUs;
constexpr int64_t kBegin = 1'700'000'000 * kSecondUs;
constexpr int64_t kFaultsUs = 6 * kHourUs;
constexpr int64_t kLastJobUs = 7 * kHourUs;
constexpr int64_t kEndUs = 16 * kHourUs;
constexpr size_t kJobsMax = 40;
// While a cluster refuses everything, or nothing connects, a provider may try so often in an hour:
// as often as the breaker takes to open, and some probes.
constexpr int64_t kVainSubmissionsMax = 20;
constexpr int64_t kVainStartsMax = 14;

struct Job {
  int32_t pilots = 1;
  int64_t left_us = 0;
  std::set<std::string> providers;
  bool is_running = false;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : dice_(seed),
        time_limit_us_(dice_.Chance(60) ? kHourUs : 24 * kHourUs),
        cluster_(dice_, time_limit_us_) {
    is_simple_ = dice_.Chance(30);
    all_flexible_ = is_simple_ || dice_.Chance(50);
    State state;
    state.server_id = "s1";
    WakeUp(state, kBegin);
    for (const char* name : {"near", "far"}) {
      ProviderSpec spec;
      spec.name = name;
      spec.owner = "ada";
      spec.time_limit_us = time_limit_us_;
      spec.max_pilots = static_cast<int32_t>(dice_.Between(2, 4));
      spec.min_pilots = !is_simple_ && dice_.Chance(40) ? 1 : 0;
      spec.backlog = static_cast<int32_t>(dice_.Between(1, 3));
      spec.preference = spec.name == "far" ? 1 : 0;
      if (!SetProvider(state, spec).ok()) Break("spec", "a provider is refused");
    }
    backup_ = disk_ = memory_ = state;
  }

  Verdict Run() {
    for (now_ = kBegin; now_ < kBegin + kEndUs && verdict_.rule.empty(); now_ += kTurnUs) {
      Spells();
      cluster_.Run(now_);
      NewJobs();
      Work();
      if (down_until_us_ <= now_) ServerTurn();
      CheckAllocations();
    }
    if (verdict_.rule.empty()) CheckEnd();
    return verdict_;
  }

 private:
  void Break(const char* rule, std::string what) {
    if (!verdict_.rule.empty()) return;
    verdict_.rule = rule;
    verdict_.what = std::move(what);
    verdict_.minute = (now_ - kBegin) / kMinuteUs;
  }

  // Faults that last for a while.
  void Spells() {
    if (now_ - kBegin >= kFaultsUs) {
      if (cluster_.has_faults) {
        cluster_.Heal(now_);
        for (const auto& [name, provider] : memory_.providers) {
          if (provider.is_paused) (void)ResumeProvider(memory_, name);
        }
        disk_ = memory_;
      }
      return;
    }
    if (spell_until_us_ > now_) return;
    cluster_.refuses = cluster_.starts_badly = cluster_.is_deaf = false;
    spell_until_us_ = now_ + dice_.Between(20, 60) * kMinuteUs;
    const int64_t kind = dice_.Between(0, 9);
    vain_.clear();
    cluster_.refuses = kind == 0;
    cluster_.starts_badly = kind == 1;
    cluster_.is_deaf = kind == 2;
  }

  void NewJobs() {
    if (now_ - kBegin >= kLastJobUs || !dice_.Chance(1) || jobs_.size() >= kJobsMax) return;
    Job job;
    job.pilots = !is_simple_ && dice_.Chance(20) ? 2 : 1;
    job.left_us = dice_.Between(2, 40) * kMinuteUs;
    if (all_flexible_ || dice_.Chance(50)) {
      job.providers = {"near", "far"};
    } else {
      job.providers = {dice_.Chance(50) ? "near" : "far"};
    }
    jobs_.push_back(job);
    verdict_.jobs += 1;
  }

  std::string ProviderOf(const std::string& pilot) const {
    return PilotNumber("s1", "near", pilot).has_value() ? "near" : "far";
  }
  const Pilot* PilotOf(const State& state, const std::string& name) const {
    const std::string provider = ProviderOf(name);
    const auto& pilots = state.providers.at(provider).pilots;
    const auto found = pilots.find(PilotNumber("s1", provider, name).value_or(0));
    return found == pilots.end() ? nullptr : &found->second;
  }
  // Workers can only be seen while the server runs, and need a moment to connect again.
  bool IsSeen(const Allocation& allocation) const {
    return down_until_us_ + kMinuteUs <= now_ && cluster_.IsConnected(allocation, now_);
  }
  std::vector<Allocation*> Free(const std::string& provider) {
    std::vector<Allocation*> free;
    for (Allocation& allocation : cluster_.allocations()) {
      if (!IsSeen(allocation) || allocation.is_draining || allocation.job >= 0) continue;
      if (ProviderOf(allocation.name) != provider) continue;
      const Pilot* pilot = PilotOf(memory_, allocation.name);
      if (pilot != nullptr && pilot->state == PilotState::kRunning) free.push_back(&allocation);
    }
    return free;
  }

  // The scheduler: first come, first served. A job whose pilots have ended goes on elsewhere.
  void Work() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      if (job.left_us <= 0) continue;
      std::vector<Allocation*> its;
      for (Allocation& allocation : cluster_.allocations()) {
        if (allocation.job == static_cast<int64_t>(i)) its.push_back(&allocation);
      }
      if (job.is_running && static_cast<int32_t>(its.size()) < job.pilots) job.is_running = false;
      if (job.is_running) job.left_us -= kTurnUs;
      if (!job.is_running || job.left_us <= 0) {
        for (Allocation* allocation : its) allocation->job = -1;
      }
      if (job.is_running || down_until_us_ > now_) continue;
      for (const std::string& provider : job.providers) {
        std::vector<Allocation*> free = Free(provider);
        if (static_cast<int32_t>(free.size()) < job.pilots) continue;
        for (int32_t k = 0; k < job.pilots; ++k) {
          free[static_cast<size_t>(k)]->job = static_cast<int64_t>(i);
        }
        job.is_running = true;
        break;
      }
    }
  }

  std::vector<Lot> Demand() {
    std::vector<Lot> demand;
    std::map<std::string, int32_t> free;
    for (const char* name : {"near", "far"}) free[name] = static_cast<int32_t>(Free(name).size());
    for (const Job& job : jobs_) {
      if (job.left_us <= 0 || job.is_running) continue;
      Lot lot;
      for (const std::string& provider : job.providers) {
        const int32_t here = std::min(free[provider], job.pilots - 1);
        free[provider] -= here;
        lot.pilots[provider] = job.pilots - here;
      }
      demand.push_back(lot);
    }
    return demand;
  }

  Inputs Observe() {
    Inputs inputs;
    inputs.now_us = now_;
    inputs.demand = Demand();
    for (const Allocation& allocation : cluster_.allocations()) {
      if (!IsSeen(allocation)) continue;
      proven_.insert(ProviderOf(allocation.name));
      inputs.workers.push_back(
          {allocation.name, 1, allocation.job >= 0 ? 1 : 0, allocation.is_draining});
    }
    for (const auto& [name, provider] : memory_.providers) {
      ProviderNews& news = inputs.news[name];
      news.submitted = std::move(results_[name]);
      results_[name].clear();
      auto& late = listings_[name];
      for (auto it = late.begin(); it != late.end(); ++it) {
        if (it->first > now_) continue;
        news.listing = it->second;
        late.erase(it);
        break;
      }
      if (now_ - asked_[name] < kListEveryUs) continue;
      asked_[name] = now_;
      int64_t delay_us = 0;
      Listing listing = cluster_.List(now_, delay_us);
      late.emplace_back(now_ + delay_us, std::move(listing));
    }
    return inputs;
  }

  void Crash() {
    verdict_.crashes += 1;
    const bool is_restored = dice_.Chance(10);
    if (is_restored) disk_ = backup_;
    memory_ = disk_;
    results_.clear();
    listings_.clear();
    down_until_us_ = now_ + (dice_.Chance(30) ? dice_.Between(1, 25) * kMinuteUs : kTurnUs);
    if (is_restored) {
      // Nobody restores within the minutes in which a submission may still be on its way.
      down_until_us_ = now_ + dice_.Between(5, 25) * kMinuteUs;
      cluster_.ForgetSubmissions();
      vain_.clear();
      verdict_.restores += 1;
    }
    WakeUp(memory_, down_until_us_);
  }

  void ServerTurn() {
    if (now_ - backup_.now_us > 2 * kHourUs) backup_ = disk_;
    const Inputs inputs = Observe();
    State next = memory_;
    if (cluster_.has_faults) People(next);
    const std::vector<Decision> decisions = Step(next, inputs);
    CheckTurn(memory_, next, inputs, decisions);
    const bool may_crash = cluster_.has_faults && dice_.Chance(1);
    const int64_t crash_at = may_crash ? dice_.Between(-1, 3) : 1000;
    if (crash_at < 0) return Crash();
    memory_ = disk_ = next;
    for (size_t i = 0; i < decisions.size(); ++i) {
      if (static_cast<int64_t>(i) == crash_at) return Crash();
      Execute(decisions[i]);
    }
    if (may_crash) Crash();
  }

  // A person pauses and resumes.
  void People(State& state) {
    const std::string name = dice_.Chance(50) ? "near" : "far";
    const bool is_paused = state.providers.at(name).is_paused;
    if (!is_paused && dice_.Between(0, 1999) == 0) (void)PauseProvider(state, name, "by hand");
    if (is_paused && dice_.Chance(1)) (void)ResumeProvider(state, name);
  }

  void Execute(const Decision& decision) {
    switch (decision.kind) {
      case DecisionKind::kSubmit: {
        if (cluster_.submissions(decision.pilot) > 0) {
          Break("a pilot is never asked for twice", decision.pilot);
        }
        verdict_.pilots += 1;
        int64_t& vain = vain_[decision.provider];
        const bool is_vain = cluster_.refuses || cluster_.starts_badly;
        if (is_vain && ++vain > (cluster_.refuses ? kVainSubmissionsMax : kVainStartsMax)) {
          Break("a provider that fails is left alone", absl::StrCat(vain, " tries"));
        }
        results_[decision.provider].push_back(cluster_.Submit(decision.pilot, now_));
        break;
      }
      case DecisionKind::kCancel:
        cluster_.Cancel(decision.foreign_id, now_);
        break;
      case DecisionKind::kDrain:
        for (Allocation& allocation : cluster_.allocations()) {
          if (allocation.name == decision.pilot && IsSeen(allocation) && allocation.job < 0) {
            allocation.is_draining = true;
          }
        }
        break;
      case DecisionKind::kBreakerOpened:
        verdict_.openings += 1;
        break;
      default:
        break;
    }
  }

  void CheckTurn(const State& before, const State& after, const Inputs& inputs,
                 const std::vector<Decision>& decisions) {
    bool has_submission = false;
    for (const Decision& decision : decisions) {
      has_submission = has_submission || decision.kind == DecisionKind::kSubmit;
      if (decision.kind != DecisionKind::kCancel && decision.kind != DecisionKind::kDrain) continue;
      const Pilot* was = PilotOf(before, decision.pilot);
      if (was == nullptr || was->state != PilotState::kRunning) continue;
      for (const WorkerSight& sight : inputs.workers) {
        if (sight.pilot == decision.pilot && sight.busy > 0 && !sight.is_draining) {
          Break("a busy pilot stays", decision.pilot);
        }
      }
    }
    for (const auto& [name, provider] : after.providers) CheckProvider(before, provider);
    if (has_submission && all_flexible_) CheckDemand(before, after, inputs);
  }

  void CheckProvider(const State& before, const Provider& provider) {
    const Provider& was = before.providers.at(provider.spec.name);
    if (provider.last_submit_us != was.last_submit_us && was.last_submit_us != 0 &&
        provider.last_submit_us - was.last_submit_us < provider.spec.submit_interval_us) {
      Break("submissions keep their distance", provider.spec.name);
    }
    int32_t probes = 0;
    int32_t staying = 0;
    bool has_new_drain = false;
    for (const auto& [number, pilot] : provider.pilots) {
      const auto old = was.pilots.find(number);
      probes += IsLive(pilot) && number >= provider.breaker.first_probe ? 1 : 0;
      if (old != was.pilots.end()) CountChange(old->second, pilot);
      staying += pilot.state < PilotState::kEnding && pilot.drain_us == 0 ? 1 : 0;
      has_new_drain = has_new_drain ||
                      (pilot.drain_us != 0 && old != was.pilots.end() && old->second.drain_us == 0);
    }
    if (provider.breaker.state == Breaker::State::kHalfOpen && probes > 1) {
      Break("one probe at a time", absl::StrCat(probes, " of ", provider.spec.name));
    }
    if (has_new_drain && staying < provider.spec.min_pilots) {
      Break("the minimum stays", absl::StrCat(provider.spec.name, ": ", staying));
    }
  }

  void CountChange(const Pilot& was, const Pilot& pilot) {
    if (was.foreign_id.empty() && was.foreign_reason == "no reply" && !pilot.foreign_id.empty()) {
      verdict_.adopted += 1;
    }
    if (was.state == PilotState::kWanted && pilot.state == PilotState::kEnded) verdict_.lost += 1;
  }

  // All requests that do not wait for long are no more than the jobs want together. A pilot that
  // starts may be left from a demand that is gone, but a simple seed would then use it.
  void CheckDemand(const State& before, const State& after, const Inputs& inputs) {
    const auto was_unneeded = [&](const std::string& name, int64_t number) {
      const auto& pilots = before.providers.at(name).pilots;
      const auto pilot = pilots.find(number);
      return pilot != pilots.end() && pilot->second.unneeded_since_us != 0;
    };
    // Two pilots of two providers do not serve a gang, so one of them may have become useless.
    bool has_gang = false;
    for (const Job& job : jobs_) has_gang = has_gang || job.pilots > 1;
    int32_t asked = 0;
    int32_t wanted = 0;
    for (const auto& [name, provider] : after.providers) {
      wanted += provider.spec.min_pilots;
      for (const auto& [number, pilot] : provider.pilots) {
        const bool is_stuck =
            IsWaiting(pilot) && after.now_us - pilot.create_us >= provider.spec.overflow_us;
        const bool counts = is_simple_ ? IsComing(pilot) : IsWaiting(pilot);
        asked += counts && !is_stuck && !was_unneeded(name, number) &&
                         !(has_gang && pilot.unneeded_since_us != 0)
                     ? 1
                     : 0;
      }
    }
    for (const Lot& lot : inputs.demand) {
      int32_t most = 0;
      for (const auto& [name, pilots] : lot.pilots) most = std::max(most, pilots);
      wanted += most;
    }
    if (asked > wanted) {
      Break("the same demand is served once", absl::StrCat(asked, " for ", wanted));
    }
  }

  void CheckAllocations() {
    std::set<std::string> names;
    std::map<std::string, int32_t> alive;
    for (const Allocation& allocation : cluster_.allocations()) {
      if (!IsAlive(allocation, now_)) continue;
      if (!names.insert(allocation.name).second) {
        Break("no pilot runs twice", allocation.name);
      }
      alive[ProviderOf(allocation.name)] += 1;
    }
    for (const auto& [name, provider] : memory_.providers) {
      if (alive[name] > provider.spec.max_pilots) {
        Break("the maximum holds", absl::StrCat(alive[name], " of ", name));
      }
      if (proven_.count(name) == 0 && alive[name] > 1) {
        Break("the first pilot is a probe", absl::StrCat(alive[name], " of ", name));
      }
    }
  }

  void CheckEnd() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].left_us > 0) Break("demand is finally served", absl::StrCat("job ", i));
    }
    std::map<std::string, int32_t> alive;
    for (const Allocation& allocation : cluster_.allocations()) {
      if (!IsAlive(allocation, now_)) continue;
      const Pilot* pilot = PilotOf(memory_, allocation.name);
      if (pilot == nullptr || !IsLive(*pilot)) {
        Break("no orphan stays", allocation.name);
      }
      alive[ProviderOf(allocation.name)] += 1;
    }
    for (const auto& [name, provider] : memory_.providers) {
      // One more may just be ending.
      if (alive[name] > provider.spec.min_pilots + 1 ||
          (provider.spec.min_pilots == 0 && alive[name] > 0)) {
        Break("idle pilots finally go", absl::StrCat(alive[name], " of ", name));
      }
      // One may have reached its time limit just now, and the next one is on its way.
      if (CountLive(provider) < provider.spec.min_pilots) {
        Break("the minimum is kept", absl::StrCat(CountLive(provider), " of ", name));
      }
      if (provider.breaker.state == Breaker::State::kOpen) Break("the breaker recovers", name);
    }
  }

  Dice dice_;
  // A short limit heals much by itself.
  const int64_t time_limit_us_;
  ModelCluster cluster_;
  State disk_;
  State memory_;
  State backup_;
  Verdict verdict_;
  bool is_simple_ = true;     // all jobs fit on one pilot of any provider, and no minimum is kept
  bool all_flexible_ = true;  // all jobs may run at any provider
  int64_t now_ = kBegin;
  int64_t down_until_us_ = 0;
  int64_t spell_until_us_ = kBegin + 20 * kMinuteUs;
  std::set<std::string> proven_;  // providers of which a worker was seen
  std::map<std::string, int64_t> vain_;
  std::vector<Job> jobs_;
  std::map<std::string, std::vector<SubmitResult>> results_;
  std::map<std::string, std::vector<std::pair<int64_t, Listing>>> listings_;
  std::map<std::string, int64_t> asked_;
};

}  // namespace

Verdict Simulate(uint64_t seed) {
  return Simulation(seed).Run();
}

}  // namespace trainyard::provision
