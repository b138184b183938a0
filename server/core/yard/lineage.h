// Records which jobs refer to others: clones to what they were cloned from, and jobs to those whose
// success they wait for. It tells what must stay of a job that is deleted.
#pragma once

#include <map>
#include <set>

#include "common/base/ids.h"
#include "server/core/lifecycle/submission.h"

namespace trainyard::core {

// The references between submissions. The class is not thread-safe. A submission is known by the
// number of the job that came with it.
class Lineage {
 public:
  void Add(JobId id, const Submission& submission);
  void Remove(JobId id, const Submission& submission);

  // Returns true if a submission that is known was cloned from a job of this one.
  bool IsCloned(JobId id, const Submission& submission) const;
  // Returns the submissions that were cloned from this job.
  std::set<JobId> ClonesOf(JobId job) const;
  // Returns the submissions whose jobs wait for the job's success, or have waited for it.
  std::set<JobId> WaitingForSuccess(JobId job) const;

 private:
  // From a job to the submissions that were cloned from it.
  std::map<JobId, std::set<JobId>> clones_;
  // From a job to the submissions that wait for its success.
  std::map<JobId, std::set<JobId>> waiting_;
};

// Returns how many jobs share the submission.
int64_t JobsOf(const Submission& submission);

}  // namespace trainyard::core
