// Estimates the time to a failure as the time that the job has trained, with a first guess added to
// it as if that had ended in one failure.
#include "worker/checkpoint/checkpoint_pace.h"

#include <algorithm>
#include <cmath>

namespace trainyard::checkpoint {

CheckpointPace::CheckpointPace(int64_t failures, absl::Duration run_time, absl::Duration cost)
    : failures_(failures), run_time_(run_time), cost_(cost) {}

void CheckpointPace::Add(absl::Duration waited, absl::Duration written) {
  cost_ = is_measured_ ? (cost_ + waited) / 2 : waited;
  written_ = written;
  is_measured_ = true;
}

absl::Duration CheckpointPace::Distance(absl::Duration trained) const {
  const absl::Duration to_failure =
      (kFirstTimeToFailure + run_time_ + trained) / static_cast<double>(failures_ + 1);
  const absl::Duration best = absl::Seconds(
      std::sqrt(2 * absl::ToDoubleSeconds(cost_) * absl::ToDoubleSeconds(to_failure)));
  return std::max({best, kDistanceMin, kWriterShare * written_});
}

bool CheckpointPace::IsDue(absl::Duration since_last, absl::Duration trained,
                           bool is_evaluated) const {
  if (is_evaluated && since_last >= kEvaluationShare * cost_) return true;
  return since_last >= Distance(trained);
}

}  // namespace trainyard::checkpoint
