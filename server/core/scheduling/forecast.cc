// Plays the queue forward on a copy of the pool, using the expected ends of jobs.
#include "server/core/scheduling/forecast.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

// The largest number of jobs ahead that are considered. A forecast over more of them would be
// worthless.
constexpr size_t kAheadMax = 1000;

class Simulation {
 public:
  Simulation(const PassInput& input, const PassState& state)
      : state_(state), slots_(state.slots), now_us_(state.now.uptime_us) {
    for (int32_t slot = 0; slot < slots_.size(); ++slot) {
      const Slot& it = slots_.slot(slot);
      if (it.claim != JobId{}) claims_[it.claim].push_back(slot);
      if (it.kept) slots_.SetKept(slot, false);
      if (it.holder != JobId{}) held_[it.holder].push_back(slot);
    }
    for (const auto& [job, held] : held_) {
      const auto running = input.running.find(job);
      if (running == input.running.end()) continue;
      const std::optional<int64_t>& end_us = running->second.end_us;
      if (end_us.has_value()) {
        ends_.insert({std::max(*end_us, now_us_), job});
      } else {
        endless_.insert(job);
      }
    }
  }

  // Advances time until the job has started. Returns false if it never does.
  bool Start(const QueuedJob& job, const GangDemand& gang) {
    const Offer& offer = state_.ReachOf(job).now;
    if (const auto claimed = claims_.find(job.id); claimed != claims_.end()) {
      for (const int32_t slot : claimed->second) slots_.SetClaim(slot, JobId{});
      claims_.erase(claimed);
    }
    std::vector<int32_t> picked = PickSlots(slots_, offer, gang);
    while (picked.empty()) {
      if (ends_.empty()) return false;
      const auto [end_us, ended] = *ends_.begin();
      ends_.erase(ends_.begin());
      now_us_ = end_us;
      last_ended_ = ended;
      for (const int32_t slot : held_[ended]) slots_.SetHolder(slot, JobId{});
      held_.erase(ended);
      picked = PickSlots(slots_, offer, gang);
    }
    for (const int32_t slot : picked) slots_.SetHolder(slot, job.id);
    if (job.expected_us > 0) {
      ends_.insert({now_us_ + job.expected_us, job.id});
    } else {
      endless_.insert(job.id);
    }
    held_[job.id] = std::move(picked);
    return true;
  }

  int64_t now_us() const { return now_us_; }
  JobId last_ended() const { return last_ended_; }

  // Returns the first job without a known end that holds devices that `job` could use, or 0.
  JobId FirstEndless(const QueuedJob& job) const {
    const Offer& offer = state_.ReachOf(job).now;
    for (const JobId& id : endless_) {
      const auto held = held_.find(id);
      if (held == held_.end()) continue;
      for (const int32_t slot : held->second) {
        if (offer[static_cast<size_t>(slots_.ShelfOf(slot).cls)] != Access::kNone) return id;
      }
    }
    return JobId{};
  }

 private:
  const PassState& state_;
  Slots slots_;
  int64_t now_us_;
  JobId last_ended_;
  HeldSlots claims_;
  HeldSlots held_;
  std::set<std::pair<int64_t, JobId>> ends_;
  std::set<JobId> endless_;
};

bool Overlap(const Offer& a, const Offer& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != Access::kNone && b[i] != Access::kNone) return true;
  }
  return false;
}

std::string WhyUnknown(const PassInput& input, const Simulation& simulation, const QueuedJob& job) {
  const JobId endless = simulation.FirstEndless(job);
  if (endless == JobId{}) return "devices that it needs are set aside or kept for other jobs";
  return absl::StrCat(JobName(endless), " has no known end: no time limit, and ",
                      input.running.count(endless) > 0 ? "no progress yet" : "it has not started");
}

}  // namespace

Forecast ForecastStart(const PassInput& input, const PassState& state,
                       const std::vector<JobId>& ahead, const QueuedJob& job) {
  if (!job.holds.empty()) return {std::nullopt, "it may not start yet, whatever is free"};
  const GangDemand gang = state.GangOf(job.demand, state.RoomOf(job));
  const Reach& reach = state.ReachOf(job);
  if (!CouldHold(state.slots, reach.ever, state.GangOf(job.demand, kNoLimit))) {
    return {std::nullopt, "the pool as it is can never hold it"};
  }
  if (gang.most < gang.least || state.quotas.IsArrayFull(job.array, job.array_parallel)) {
    return {std::nullopt, "it waits for room in a quota or in its array"};
  }
  if (ahead.size() > kAheadMax) {
    return {std::nullopt, absl::StrCat(ahead.size(), " jobs are ahead: too many to tell")};
  }
  Simulation simulation(input, state);
  for (const JobId& id : ahead) {
    const QueuedJob* other = input.queue.Find(id);
    if (other == nullptr) continue;
    const GangDemand others = state.GangOf(other->demand, state.RoomOf(*other));
    const Reach& their_reach = state.ReachOf(*other);
    if (others.most < others.least || !Overlap(their_reach.now, reach.now)) continue;
    if (!CouldHold(state.slots, their_reach.ever, others)) continue;
    if (!simulation.Start(*other, others)) {
      return {std::nullopt, absl::StrCat(JobName(id), " is ahead, and when it starts is unknown: ",
                                         WhyUnknown(input, simulation, *other))};
    }
  }
  if (!simulation.Start(job, gang)) return {std::nullopt, WhyUnknown(input, simulation, job)};
  const int64_t start_in_us = simulation.now_us() - state.now.uptime_us;
  const JobId last = simulation.last_ended();
  return {start_in_us, last == JobId{}
                           ? "devices are free"
                           : absl::StrCat("when ", JobName(last), " ends, as expected")};
}

}  // namespace trainyard::core
