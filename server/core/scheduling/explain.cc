// Explains why jobs wait, from what the last pass has left behind: reasons, a change that would
// help, and a forecast.
#include "server/core/scheduling/explain.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/scheduling/explain_change.h"
#include "server/core/scheduling/explain_reasons.h"
#include "server/core/scheduling/forecast.h"

namespace trainyard::core {
namespace {

class FullRecord : public PassRecord {
 public:
  FullRecord(const PassInput& input, std::unique_ptr<const PassState> state,
             const std::vector<JobId>& front)
      : state_(std::move(state)), capacity_(input.pool, *state_) {
    int64_t position = 0;
    for (const JobId& job : front) {
      const QueuedJob* queued = input.queue.Find(job);
      if (queued != nullptr && queued->holds.empty()) positions_[job] = ++position;
    }
    for (int32_t slot = 0; slot < state_->slots.size(); ++slot) {
      const Slot& it = state_->slots.slot(slot);
      if (it.claim != JobId{}) ++claims_[it.claim][it.holder];
    }
  }

  std::vector<std::string> Reasons(const PassInput& input, JobId job) const override {
    const QueuedJob* queued = input.queue.Find(job);
    if (queued == nullptr) return {};
    std::vector<std::string> reasons = WhyNot(*queued);
    if (!queued->holds.empty()) return reasons;
    const int64_t ahead = PositionOf(input, job) - 1;
    if (reasons.empty() && ahead == 0) reasons.push_back("waits for the next pass");
    if (ahead > 0) {
      reasons.push_back(ahead == 1 ? "1 job is ahead" : absl::StrCat(ahead, " jobs are ahead"));
    }
    return reasons;
  }

  Explanation Explain(const PassInput& input, const QueuedJob& job) const override {
    const bool is_queued = job.id != JobId{} && input.queue.Find(job.id) != nullptr;
    Explanation explanation;
    explanation.reasons = is_queued ? Reasons(input, job.id) : WhyNot(job);
    // Nobody knows what the pool can hold before its first worker has come.
    explanation.infeasible = state_->slots.size() > 0 && !capacity_.IsFeasible(job);
    std::vector<JobId> ahead;
    if (is_queued && job.holds.empty()) {
      explanation.position = PositionOf(input, job.id);
      ahead = FirstJobs(input.queue, state_->share, state_->rules,
                        static_cast<size_t>(explanation.position - 1));
    } else {
      ahead = AllAhead(input, job);
    }
    if (std::optional<Change> change = FindChange(input, *state_, job); change.has_value()) {
      explanation.change = std::move(change->fields);
      explanation.change_text = std::move(change->text);
    }
    Forecast forecast = ForecastStart(input, *state_, ahead, job);
    explanation.start_in_us = forecast.start_in_us;
    explanation.start_basis = std::move(forecast.basis);
    return explanation;
  }

 private:
  std::vector<std::string> WhyNot(const QueuedJob& job) const {
    std::vector<std::string> reasons = job.holds;
    const GangDemand gang = state_->GangOf(job.demand, kNoLimit);
    if (std::vector<std::string> claims = WhyNotYet(job.id); !claims.empty()) {
      reasons.insert(reasons.end(), claims.begin(), claims.end());
      return reasons;
    }
    const std::vector<std::string> quotas = state_->quotas.WhyNot(
        job, gang.least, state_->quotas.has_host_limits() ? state_->NeedOf(job) : HostAmount{});
    reasons.insert(reasons.end(), quotas.begin(), quotas.end());
    const std::vector<std::string> capacity = capacity_.WhyNot(job);
    // For a held job it does not matter what is free now, but its user should know if the pool can
    // never hold it.
    if (job.holds.empty() || !capacity_.IsFeasible(job)) {
      reasons.insert(reasons.end(), capacity.begin(), capacity.end());
    }
    for (const Head& head : state_->backfill.heads()) {
      if (head.job != job.id || !head.start_us.has_value()) continue;
      reasons.push_back(OfHead(head));
    }
    return reasons;
  }

  // Returns why a nominated job has not started yet: some devices that are claimed for it are still
  // held.
  std::vector<std::string> WhyNotYet(JobId job) const {
    std::vector<std::string> reasons;
    const auto found = claims_.find(job);
    if (found == claims_.end()) return reasons;
    int32_t claimed = 0;
    for (const auto& [holder, count] : found->second) claimed += count;
    for (const auto& [holder, count] : found->second) {
      if (holder == JobId{}) continue;
      reasons.push_back(absl::StrCat(claimed, claimed == 1 ? " device is" : " devices are",
                                     " kept for it; ", JobName(holder), " has still to give ",
                                     count, " of them back"));
    }
    return reasons;
  }

  std::string OfHead(const Head& head) const {
    return absl::StrCat("devices are kept for it as they become free: enough at ",
                        TimeOfDay(state_->now, *head.start_us),
                        ", if jobs end when they are expected to");
  }

  // Returns the place in the queue, counted from 1. The pass knows it for the first jobs. All jobs
  // are sorted only when another one is asked for.
  int64_t PositionOf(const PassInput& input, JobId job) const {
    auto found = positions_.find(job);
    if (found == positions_.end() && !knows_all_) {
      int64_t position = 0;
      positions_.clear();
      for (const JobId& id :
           FirstJobs(input.queue, state_->share, state_->rules, input.queue.size())) {
        positions_[id] = ++position;
      }
      knows_all_ = true;
      found = positions_.find(job);
    }
    if (found != positions_.end()) return found->second;
    return static_cast<int64_t>(positions_.size()) + 1;  // it came after the pass
  }

  // Returns the jobs before one that is submitted now, which is the last of its priority. A job
  // that is held back takes its place when it may start, and until then counts as the last one,
  // too.
  std::vector<JobId> AllAhead(const PassInput& input, const QueuedJob& job) const {
    std::vector<JobId> ahead =
        FirstJobs(input.queue, state_->share, state_->rules, input.queue.size());
    if (!state_->rules.priorities) return ahead;
    std::vector<JobId> first;
    for (const JobId& id : ahead) {
      if (input.queue.Find(id)->priority >= job.priority) first.push_back(id);
    }
    return first;
  }

  std::unique_ptr<const PassState> state_;
  CapacityReasons capacity_;
  // The number of claimed devices by job and by holder (0 if free).
  std::map<JobId, std::map<JobId, int32_t>> claims_;
  mutable std::map<JobId, int64_t> positions_;
  mutable bool knows_all_ = false;
};

}  // namespace

std::shared_ptr<const PassRecord> MakeRecord(const PassInput& input,
                                             std::unique_ptr<const PassState> state,
                                             const std::vector<JobId>& front) {
  return std::make_shared<FullRecord>(input, std::move(state), front);
}

}  // namespace trainyard::core
