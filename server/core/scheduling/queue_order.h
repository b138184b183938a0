// The order of the queue: by priority; then jobs that have waited for very long, by number; then by
// fair share; then by number, which is the order of submission, so that a job that comes back from
// a failure has the place that it had.
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
  int64_t overdue_before_us = 0;  // wall: jobs that wait since earlier are overdue
};

// What a visitor says of a job that the walk has come to.
enum class Visit {
  kTaken,       // it starts, or is nominated: its owner's share has changed
  kPassed,      // this job stays, the next of its kind may start
  kKindFails,   // the rest of its kind cannot start either: the walk leaves it out
  kShapeFails,  // nor can any job of that shape
  kEnough,      // the walk ends
};
using Visitor = std::function<Visit(const QueuedJob& job)>;

// Visits the jobs without holds in their order. Reads `share` again after each job that is taken,
// so that what a visitor charges there moves its owner back.
void WalkQueue(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
               const Visitor& visitor);

// The first `limit` jobs in the order that the shares give as they stand.
std::vector<JobId> FirstJobs(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
                             size_t limit);

}  // namespace trainyard::core
