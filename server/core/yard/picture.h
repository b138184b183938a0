// The picture that a pass looks at: the pool, the queue and the running jobs. Only what has changed
// is drawn anew.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/scheduling/plan.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// Not thread-safe.
class Picture {
 public:
  // Takes the jobs and the workers that have changed since the last call. RefreshJobs returns the
  // jobs that have left the queue.
  std::vector<JobId> RefreshJobs(YardState& state);
  void RefreshPool(YardState& state);
  // Draws anew how all running jobs fare now.
  void RefreshRunning(const YardState& state, Now now);

  // Borrows the state and this.
  PassInput Input(const YardState& state, Now now) const;

  const Pool& pool() const { return pool_; }
  const JobQueue& queue() const { return queue_; }
  const std::map<JobId, RunningJob>& running() const { return running_; }
  // The job has got these devices since the pool was refreshed.
  void Hold(JobId job, const std::vector<RankPlacement>& ranks);

 private:
  void RefreshWorker(const YardState& state, const std::string& name);
  bool RefreshJob(const YardState& state, JobId id);

  Pool pool_;
  JobQueue queue_;
  std::map<JobId, RunningJob> running_;
};

// A job that nobody has submitted yet, as the queue would show it.
QueuedJob PreviewJob(const YardState& state, const Submission& submission, Now now);

}  // namespace trainyard::core
