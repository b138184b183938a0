// Plays the queue forward on a copy of the pool, using the expected ends of jobs.
#include "server/core/scheduling/forecast.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/scheduling/explain_reasons.h"

namespace trainyard::core {
namespace {

// The largest number of jobs ahead that are considered. A forecast over more of them would be
// worthless.
constexpr size_t kAheadMax = 1000;

class Simulation {
 public:
  Simulation(const PassInput& input, const PassState& state)
      : state_(state), speeds_(input.speeds), slots_(state.slots), now_us_(state.now.uptime_us) {
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
        Expect(job, std::max(*end_us, now_us_));
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
      last_ended_ = EndNext();
      picked = PickSlots(slots_, offer, gang);
    }
    for (const int32_t slot : picked) {
      slots_.SetHolder(slot, job.id, slots_.NeedOn(job.demand.resources, slots_.ClassOf(slot)));
    }
    if (const int64_t takes_us = TimeOf(job, picked.size()); takes_us > 0) {
      Expect(job.id, now_us_ + takes_us);
    } else {
      endless_.insert(job.id);
    }
    held_[job.id] = std::move(picked);
    return true;
  }

  // Advances time to this point, unless it is later already.
  void AdvanceTo(int64_t time_us) {
    while (!ends_.empty() && ends_.begin()->first <= time_us) (void)EndNext();
    last_ended_ = JobId{};
    now_us_ = std::max(now_us_, time_us);
  }

  // Returns when the job is expected to end, if that is known.
  std::optional<int64_t> EndOf(JobId job) const {
    const auto found = end_of_.find(job);
    if (found == end_of_.end()) return std::nullopt;
    return found->second;
  }

  int64_t now_us() const { return now_us_; }
  JobId last_ended() const { return last_ended_; }
  // Returns the jobs by which the times of others were estimated.
  const std::map<JobId, JobId>& estimated_by() const { return estimated_by_; }

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
  void Expect(JobId job, int64_t end_us) {
    ends_.insert({end_us, job});
    end_of_[job] = end_us;
  }

  // Advances time to the next end, and returns whose end it is.
  JobId EndNext() {
    const auto [end_us, ended] = *ends_.begin();
    ends_.erase(ends_.begin());
    now_us_ = std::max(now_us_, end_us);
    for (const int32_t slot : held_[ended]) slots_.SetHolder(slot, JobId{});
    held_.erase(ended);
    return ended;
  }

  // Returns the time that the job will take on this many devices, at most its limit. It is that of
  // a job like it, or 0 if nobody can tell.
  int64_t TimeOf(const QueuedJob& job, size_t devices) {
    const Speeds::Estimate estimate =
        speeds_ == nullptr ? Speeds::Estimate() : speeds_->For(job.work);
    const int64_t takes_us = estimate.device_us / static_cast<int64_t>(devices);
    if (takes_us <= 0 || (job.expected_us > 0 && job.expected_us <= takes_us)) {
      return job.expected_us;
    }
    estimated_by_[job.id] = estimate.like;
    return takes_us;
  }

  const PassState& state_;
  const Speeds* const speeds_;
  Slots slots_;
  int64_t now_us_;
  JobId last_ended_;
  HeldSlots claims_;
  HeldSlots held_;
  std::set<std::pair<int64_t, JobId>> ends_;
  std::map<JobId, int64_t> end_of_;  // of all jobs that were ever in `ends_`
  std::set<JobId> endless_;
  std::map<JobId, JobId> estimated_by_;
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
  return absl::StrCat(JobName(endless), " has no known end: no time limit, ",
                      input.running.count(endless) > 0
                          ? "and no progress yet"
                          : "it has not started, and no job like it has succeeded here");
}

// Returns when the holds of a job are expected to be over, in uptime, and what that depends on.
Forecast ForecastRelease(Now now, const Simulation& simulation, const Release& release) {
  Forecast forecast{now.uptime_us, ""};
  if (release.not_before_us > 0) {
    const int64_t begin_us = now.uptime_us + release.not_before_us - now.wall_us;
    forecast = {std::max(begin_us, now.uptime_us),
                absl::StrCat("not before ", TimeOfDay(now, begin_us))};
  }
  for (const JobId& job : release.after) {
    const std::optional<int64_t> end_us = simulation.EndOf(job);
    if (!end_us.has_value()) {
      return {std::nullopt, absl::StrCat("after ", JobName(job), ", whose end is not known yet")};
    }
    if (*end_us < *forecast.start_in_us && !forecast.basis.empty()) continue;
    forecast = {*end_us, absl::StrCat("after ", JobName(job), ", if it ",
                                      release.needs_success ? "succeeds" : "ends",
                                      " when it is expected to")};
  }
  return forecast;
}

}  // namespace

Forecast ForecastStart(const PassInput& input, const PassState& state,
                       const std::vector<JobId>& ahead, const QueuedJob& job) {
  if (!job.holds.empty() && job.release.empty()) {
    return {std::nullopt, "it may not start yet, whatever is free"};
  }
  if (job.release.never_comes) return {std::nullopt, "what it waits for never comes"};
  if (state.slots.size() == 0)
    return {std::nullopt, "it starts when a worker joins that can hold it"};
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
  Forecast release{std::nullopt, ""};
  if (!job.holds.empty()) {
    release = ForecastRelease(state.now, simulation, job.release);
    if (!release.start_in_us.has_value()) return release;
    simulation.AdvanceTo(*release.start_in_us);
  }
  if (!simulation.Start(job, gang)) return {std::nullopt, WhyUnknown(input, simulation, job)};
  const int64_t start_in_us = simulation.now_us() - state.now.uptime_us;
  const JobId last = simulation.last_ended();
  if (last == JobId{}) {
    return {start_in_us, release.basis.empty() ? "devices are free" : release.basis};
  }
  const auto like = simulation.estimated_by().find(last);
  if (like == simulation.estimated_by().end()) {
    return {start_in_us, absl::StrCat("when ", JobName(last), " ends, as expected")};
  }
  return {start_in_us, absl::StrCat("when ", JobName(last), " ends, if it takes as long as ",
                                    JobName(like->second), ", a job like it")};
}

}  // namespace trainyard::core
