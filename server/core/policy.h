// The scheduling decision: a pure function of the pool and the queue. What it places is checked
// against the pool before it becomes true (CheckPlacement).
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "server/core/placement.h"

namespace trainyard::core {

struct Place {
  std::vector<RankPlacement> ranks;
};
// It could start here, but not now.
struct Wait {
  std::vector<std::string> reasons;
};
// The pool as it is can never hold it.
struct Infeasible {
  std::vector<std::string> reasons;
};

using Decision = std::variant<Place, Wait, Infeasible>;
using Plan = std::map<JobId, Decision>;

class Policy {
 public:
  virtual ~Policy() = default;
  // One decision for each job of `queue`, which comes in any order.
  virtual Plan MakePlan(Pool pool, std::vector<QueuedJob> queue) const = 0;
};

// First in, first out: whoever cannot start makes all behind him wait, so that a wide gang is never
// starved by narrow ones. Jobs that the pool can never hold, and jobs in a backoff, hold up nobody.
class FifoPolicy : public Policy {
 public:
  Plan MakePlan(Pool pool, std::vector<QueuedJob> queue) const override;
};

}  // namespace trainyard::core
