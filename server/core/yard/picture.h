// Keeps the picture that a pass looks at: the pool, the queue and the running jobs. Only parts that
// have changed are drawn again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/scheduling/plan.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// The picture. The class is not thread-safe.
class Picture {
 public:
  // These take over the jobs and the workers that have changed since the last call. RefreshJobs
  // returns the jobs that have left the queue.
  std::vector<JobId> RefreshJobs(YardState& state);
  void RefreshPool(YardState& state);
  // Draws the present state of all running jobs again.
  void RefreshRunning(const YardState& state, Now now);

  // Returns the input of a pass. It borrows the state and this object.
  PassInput Input(const YardState& state, Now now) const;
  // Returns the pool with these workers besides. They are its last ones.
  static void AddPossible(const PossibleWorkers& possible, Pool& pool);

  const Pool& pool() const { return pool_; }
  const JobQueue& queue() const { return queue_; }
  const std::map<JobId, RunningJob>& running() const { return running_; }
  // Notes that the job has got these devices since the pool was refreshed.
  void Hold(JobId job, const std::vector<RankPlacement>& ranks);

 private:
  void RefreshWorker(const YardState& state, const std::string& name);
  bool RefreshJob(const YardState& state, JobId id);

  Pool pool_;
  JobQueue queue_;
  std::map<JobId, RunningJob> running_;
};

// Returns a job that nobody has submitted yet, as the queue would show it.
QueuedJob PreviewJob(const YardState& state, const Submission& submission, Now now);

}  // namespace trainyard::core
