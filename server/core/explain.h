// Why a job waits, in sentences for people.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/core/placement.h"

namespace trainyard::core {

// The pool counted once, so that explaining ten thousand queued jobs stays cheap.
class PoolSummary {
 public:
  explicit PoolSummary(const Pool& pool);

  // Devices that could ever fit the demand, whoever holds them now.
  int32_t Capacity(const Demand& demand) const;

  // Why the demand does not fit now: what is needed, what is free, who holds the rest, and what is
  // set aside. For a demand that capacity rules out: that it can never start here.
  std::vector<std::string> WhyNot(const Demand& demand) const;

 private:
  struct Count {
    int32_t total = 0;
    int32_t free = 0;
    std::map<JobId, int32_t> held;
    // "worker lab-1 is cordoned" -> devices that it keeps from being offered.
    std::map<std::string, int32_t> set_aside;
  };

  // The counts that matter to a demand: of its type; of the type that has most; of all types.
  const Count& For(const Demand& demand) const;

  bool has_workers_ = false;
  std::map<std::string, Count> by_type_;
  Count all_;
};

// "job jobs/7 is ahead in the queue".
std::string AheadInQueue(JobId job);

}  // namespace trainyard::core
