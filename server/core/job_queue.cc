#include "server/core/job_queue.h"

#include <utility>

namespace trainyard::core {

void JobQueue::Put(QueuedJob job) {
  const JobId id = job.id;
  jobs_.insert_or_assign(id, std::move(job));
}

void JobQueue::Remove(JobId job) {
  jobs_.erase(job);
}

const QueuedJob* JobQueue::Find(JobId job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

}  // namespace trainyard::core
