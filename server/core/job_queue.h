// The queue, sorted for passes over 100,000 jobs: by kind of demand, so that a pass asks once for a
// kind and not once for a job.
#pragma once

#include <map>

#include "server/core/placement.h"

namespace trainyard::core {

// Not thread-safe. Pointers are valid until the next change.
class JobQueue {
 public:
  void Put(QueuedJob job);  // replaces the one of that number
  void Remove(JobId job);
  const QueuedJob* Find(JobId job) const;
  size_t size() const { return jobs_.size(); }
  bool empty() const { return jobs_.empty(); }
  const std::map<JobId, QueuedJob>& jobs() const { return jobs_; }

 private:
  std::map<JobId, QueuedJob> jobs_;
};

}  // namespace trainyard::core
