// Defines the order of the queue: by priority; then jobs that have waited for very long, by number;
// then by fair share; then by number. The number is the order of submission, so a job that returns
// after a failure has the place that it had.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/scheduling/fair_share.h"
#include "server/core/scheduling/job_queue.h"

namespace trainyard::core {

struct OrderRules {
  bool priorities = true;
  bool fair_share = true;
  int64_t overdue_before_us = 0;  // wall time; jobs that wait since before it are overdue
};

// The verdict of a visitor about a job that the walk has come to.
enum class Visit {
  kTaken,       // it starts, or is nominated, so its owner's share has changed
  kPassed,      // this job stays, but the next of its kind may start
  kKindFails,   // the rest of its kind cannot start either, so the walk skips it
  kShapeFails,  // no job of that shape can start
  kEnough,      // the walk ends
};
using Visitor = std::function<Visit(const QueuedJob& job)>;

// Visits the jobs without holds in their order. It reads `share` again after each job that is
// taken, so that what a visitor charges there moves its owner back.
void WalkQueue(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
               const Visitor& visitor);

// Returns the first `limit` jobs in the order that the present shares give.
std::vector<JobId> FirstJobs(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
                             size_t limit);

}  // namespace trainyard::core
