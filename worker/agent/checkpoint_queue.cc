// Chooses which checkpoint is sent next: one at a time, the oldest first, until each is committed
// or given up. A checkpoint is given up only if the server refuses it or its bytes are damaged
// again and again.
#include "worker/agent/checkpoint_queue.h"

#include <algorithm>
#include <utility>

namespace trainyard::agent {
namespace {

constexpr absl::Duration kBackoffFirst = absl::Milliseconds(100);
constexpr absl::Duration kBackoffLast = absl::Seconds(5);
// The bytes of a checkpoint may be damaged in transit once, but not each time.
constexpr int kDamageTries = 3;

bool IsSame(const UploadTarget& a, const UploadTarget& b) {
  return a.id == b.id && a.exited == b.exited && a.fencing_token == b.fencing_token &&
         a.checkpoints == b.checkpoints;
}

}  // namespace

CheckpointQueue::CheckpointQueue(Rng& rng) : backoff_(kBackoffFirst, kBackoffLast, rng) {}

bool CheckpointQueue::SetTargets(std::vector<UploadTarget> targets) {
  if (std::equal(targets.begin(), targets.end(), targets_.begin(), targets_.end(), IsSame)) {
    return false;
  }
  targets_ = std::move(targets);
  std::erase_if(states_, [this](const auto& entry) {
    return std::none_of(targets_.begin(), targets_.end(),
                        [&](const UploadTarget& target) { return target.id == entry.first; });
  });
  return true;
}

std::optional<int64_t> CheckpointQueue::NextStepOf(const UploadTarget& target) const {
  const auto state = states_.find(target.id);
  for (const int64_t step : target.checkpoints) {
    if (state == states_.end()) return step;
    if (!state->second.committed.contains(step) && !state->second.given_up.contains(step)) {
      return step;
    }
  }
  return std::nullopt;
}

std::optional<CheckpointQueue::Upload> CheckpointQueue::Next() const {
  for (const UploadTarget& target : targets_) {
    if (const auto step = NextStepOf(target); step.has_value()) return Upload{target, *step};
  }
  return std::nullopt;
}

std::optional<absl::Duration> CheckpointQueue::Ended(AttemptId id, int64_t step,
                                                     const absl::Status& status) {
  const bool is_wanted = std::any_of(targets_.begin(), targets_.end(),
                                     [id](const UploadTarget& target) { return target.id == id; });
  if (!is_wanted) return std::nullopt;
  State& state = states_[id];
  if (status.ok()) {
    backoff_.Reset();
    state.committed.insert(step);
    return std::nullopt;
  }
  const bool is_damaged = absl::IsDataLoss(status) && ++state.failures[step] >= kDamageTries;
  if (!is_damaged && !IsRefusal(status)) return backoff_.Next();
  state.given_up.insert(step);
  return std::nullopt;
}

CheckpointQueue::Progress CheckpointQueue::ProgressOf(AttemptId id) const {
  Progress progress;
  if (const auto state = states_.find(id); state != states_.end()) {
    progress.committed = state->second.committed;
  }
  for (const UploadTarget& target : targets_) {
    // An exited attempt writes no further checkpoints.
    if (target.id == id && target.exited) progress.done = !NextStepOf(target).has_value();
  }
  return progress;
}

}  // namespace trainyard::agent
