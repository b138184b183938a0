// Scales the device time of a job by the lengths of both.
#include "server/core/scheduling/speeds.h"

namespace trainyard::core {

void Speeds::Note(JobId job, const Work& work, int64_t device_us) {
  if (work.key.empty() || work.length <= 0 || device_us <= 0) return;
  known_[work.key] = {job, work.length, device_us};
}

Speeds::Estimate Speeds::For(const Work& work) const {
  const auto found = work.key.empty() ? known_.end() : known_.find(work.key);
  if (found == known_.end()) return {};
  const Known& known = found->second;
  const auto device_us = static_cast<__int128>(known.device_us) * work.length / known.length;
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000;  // longer makes no difference
  return {device_us > kYear ? kYear : static_cast<int64_t>(device_us), known.job};
}

}  // namespace trainyard::core
