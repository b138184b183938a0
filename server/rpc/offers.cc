// Checks an offered change as a clone with it would be checked.
#include "server/rpc/offers.h"

#include "common/spec/change.h"
#include "common/spec/resolve.h"
#include "server/codec/submission.h"
#include "server/rpc/convert.h"

namespace trainyard::rpc {

core::AcceptChange AcceptIfSubmittable(const core::Submission& submission, const core::Yard& yard,
                                       core::Now now) {
  return [&submission, &yard, now](const core::SpecFields& changes) {
    v1::JobSpec spec = ResolvedSpecOf(submission);
    for (const auto& [path, value] : changes) {
      if (!spec::ApplyChange(spec, path, value).ok()) return false;
    }
    v1::JobSpec resolved;
    if (!spec::ResolveInto(spec, resolved).empty()) return false;
    core::Submission changed = submission;
    codec::TakeSpec(resolved, changed);
    // The memory was planned for other devices or another type of numbers.
    changed.demand.host_need_bytes = submission.demand.host_need_bytes;
    changed.demand.gpu_need_bytes = submission.demand.gpu_need_bytes;
    // A clone is one job, and inherits no dependencies.
    changed.array_size = 0;
    changed.dependencies.clear();
    return yard.Admit(changed, now).ok();
  };
}

}  // namespace trainyard::rpc
