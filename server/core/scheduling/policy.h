// Makes the scheduling decision, a pure function of the pool, the queue and the running jobs. Each
// placement is checked against the pool before it takes effect (CheckPlacement).
#pragma once

#include <memory>

#include "server/core/scheduling/plan.h"

namespace trainyard::core {

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Plan MakePlan(const PassInput& input) const = 0;
};

std::unique_ptr<const Policy> MakePolicy(const PolicyOptions& options = {});

}  // namespace trainyard::core
