#include "server/core/policy.h"

#include <optional>
#include <utility>

#include "server/core/explain.h"
#include "server/core/queue_order.h"

namespace trainyard::core {
namespace {

class FifoRecord : public PassRecord {
 public:
  std::vector<std::string> Reasons(const PassInput&, JobId job) const override {
    const auto found = reasons.find(job);
    return found == reasons.end() ? std::vector<std::string>{} : found->second;
  }
  Explanation Explain(const PassInput& input, const QueuedJob& job) const override {
    Explanation explanation;
    explanation.reasons = Reasons(input, job.id);
    return explanation;
  }

  std::map<JobId, std::vector<std::string>> reasons;
};

// First in, first out: whoever cannot start makes all behind him wait, so that a wide gang is never
// starved by narrow ones. Jobs that the pool can never hold, and jobs in a backoff, hold up nobody.
class FifoPolicy : public Policy {
 public:
  Plan MakePlan(const PassInput& input) const override {
    std::vector<QueuedJob> queue;
    for (const auto& [id, job] : input.queue.jobs()) queue.push_back(job);
    OrderQueue(queue);
    Pool pool = input.pool;
    Plan plan;
    auto record = std::make_shared<FifoRecord>();
    PoolSummary summary(pool);
    std::optional<JobId> head;  // the first that has to wait
    for (const QueuedJob& job : queue) {
      std::vector<std::string>& reasons = record->reasons[job.id];
      if (plan.front.size() < kFrontMax) plan.front.push_back(job.id);
      if (summary.Capacity(job.demand) < job.demand.count) {
        reasons = summary.WhyNot(job.demand);
        reasons.insert(reasons.end(), job.holds.begin(), job.holds.end());
        continue;
      }
      if (!job.holds.empty()) {
        reasons = job.holds;
        continue;
      }
      if (head.has_value()) {
        reasons = {AheadInQueue(*head)};
        continue;
      }
      if (auto ranks = PlaceGang(pool, job); ranks.has_value()) {
        Hold(pool, job.id, *ranks);
        summary = PoolSummary(pool);
        plan.placements.push_back({job.id, *std::move(ranks)});
        continue;
      }
      head = job.id;
      reasons = summary.WhyNot(job.demand);
    }
    plan.record = std::move(record);
    return plan;
  }
};

}  // namespace

std::unique_ptr<const Policy> MakePolicy(const PolicyOptions&) {
  return std::make_unique<FifoPolicy>();
}

}  // namespace trainyard::core
