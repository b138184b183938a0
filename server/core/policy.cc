#include "server/core/policy.h"

#include <optional>
#include <utility>

#include "server/core/explain.h"
#include "server/core/queue_order.h"

namespace trainyard::core {

Plan FifoPolicy::MakePlan(Pool pool, std::vector<QueuedJob> queue) const {
  OrderQueue(queue);
  Plan plan;
  PoolSummary summary(pool);
  std::optional<JobId> head;  // the first that has to wait
  for (const QueuedJob& job : queue) {
    if (summary.Capacity(job.demand) < job.demand.count) {
      std::vector<std::string> reasons = summary.WhyNot(job.demand);
      reasons.insert(reasons.end(), job.holds.begin(), job.holds.end());
      plan[job.id] = Infeasible{std::move(reasons)};
      continue;
    }
    if (!job.holds.empty()) {
      plan[job.id] = Wait{job.holds};
      continue;
    }
    if (head.has_value()) {
      plan[job.id] = Wait{{AheadInQueue(*head)}};
      continue;
    }
    if (auto ranks = PlaceGang(pool, job); ranks.has_value()) {
      Hold(pool, job.id, *ranks);
      summary = PoolSummary(pool);
      plan[job.id] = Place{*std::move(ranks)};
      continue;
    }
    head = job.id;
    plan[job.id] = Wait{summary.WhyNot(job.demand)};
  }
  return plan;
}

}  // namespace trainyard::core
