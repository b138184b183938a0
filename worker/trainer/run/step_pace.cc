// Takes the median of the last steps, which one slow step does not change.
#include "worker/trainer/run/step_pace.h"

#include <algorithm>

namespace trainyard::trainer {
namespace {

constexpr uint64_t kStepsKnown = 3;
constexpr int kLimitSteps = 20;
constexpr absl::Duration kLimitMin = absl::Seconds(10);
constexpr absl::Duration kLimitMax = absl::Seconds(20);
// The limit is at least this many steps, however long they are.
constexpr int kLimitStepsMin = 5;
// Progress is written once a second, and a rank that has waited in vain needs a moment to end.
constexpr absl::Duration kSilenceMargin = absl::Seconds(3);

}  // namespace

void StepPace::Add(absl::Duration step) {
  steps_[count_ % kWindow] = step;
  ++count_;
  if (count_ < kStepsKnown) return;
  std::array<absl::Duration, kWindow> sorted = steps_;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(count_, kWindow));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  median_ = *middle;
}

absl::Duration StepPace::CollectiveLimit() const {
  if (count_ < kStepsKnown) return kFirstLimit;
  return std::max(std::clamp(kLimitSteps * median_, kLimitMin, kLimitMax),
                  kLimitStepsMin * median_);
}

absl::Duration StepPace::LimitAfterCheckpoint() const {
  return std::max(CollectiveLimit(), kCheckpointLimit);
}

absl::Duration StepPace::Silence(absl::Duration limit) const {
  return limit + median_ + kSilenceMargin;
}

absl::Duration StepPace::SilenceInEvaluation(absl::Duration slowest) {
  return std::max(kLimitMax, kLimitSteps * slowest);
}

}  // namespace trainyard::trainer
