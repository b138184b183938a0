// Looks at all jobs in turn.
#include "server/retention.h"

#include <algorithm>

#include "server/core/lifecycle/job_fsm.h"

namespace trainyard {

std::vector<JobId> FindEndedBefore(const core::Yard& yard, int64_t before_us, size_t max) {
  std::vector<JobId> found;
  for (const auto& [id, job] : yard.snapshot().jobs) {
    if (found.size() == max) break;
    if (!core::job_fsm::IsFinal(job.state) || job.end_us == 0 || job.end_us >= before_us) continue;
    const std::vector<std::string>& tags = job.submission->tags;
    if (std::find(tags.begin(), tags.end(), kKeepTag) != tags.end()) continue;
    if (yard.PlanDeletion({id, /*checkpoints_only=*/false, ""}).ok()) found.push_back(id);
  }
  return found;
}

}  // namespace trainyard
