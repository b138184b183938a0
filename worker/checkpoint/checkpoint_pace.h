// Chooses the distance of checkpoints if the spec leaves it to the trainer
// (`checkpoint.every: auto`), by what they cost and by how often the job fails. It does no I/O.
//
// If training waits for a time C at each checkpoint, and fails once in a time M, then a distance of
// sqrt(2 C M) loses the least time (J. W. Young, "A First Order Approximation to the
// Optimum Checkpoint Interval", CACM 17(9), 1974).
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace trainyard::checkpoint {

// The pace of one attempt. The class is not thread-safe.
class CheckpointPace {
 public:
  // The time in which a job fails once, as long as nothing else is known.
  static constexpr absl::Duration kFirstTimeToFailure = absl::Hours(6);
  // The distance is not shorter, for the sake of the server that takes over the checkpoints of all
  // jobs.
  static constexpr absl::Duration kDistanceMin = absl::Seconds(10);
  // The writer is busy for at most one part in so many of the time.
  static constexpr int kWriterShare = 4;
  // An evaluation is a good moment: the checkpoint then holds its result, and can be the best one.
  // It is written there even if none is due, unless it costs more than one part in so many of the
  // time since the last one.
  static constexpr int kEvaluationShare = 100;

  // `failures` and `run_time` are those of the job's earlier attempts. `cost` stands in for what a
  // checkpoint costs until one was measured.
  CheckpointPace(int64_t failures, absl::Duration run_time, absl::Duration cost);

  // Counts a checkpoint for which training waited so long, steps that became slower included, and
  // which took `written` until it was complete.
  void Add(absl::Duration waited, absl::Duration written);

  // Returns what a checkpoint costs the training. Newer ones count more than older ones.
  absl::Duration cost() const { return cost_; }
  // Returns the distance when this attempt has trained for `trained`.
  absl::Duration Distance(absl::Duration trained) const;
  // Returns true if a checkpoint is due `since_last` after the one before. `is_evaluated` says that
  // the weights are evaluated at this moment.
  bool IsDue(absl::Duration since_last, absl::Duration trained, bool is_evaluated) const;

 private:
  const int64_t failures_;
  const absl::Duration run_time_;
  absl::Duration cost_;
  absl::Duration written_;  // by the last one that was measured
  bool is_measured_ = false;
};

}  // namespace trainyard::checkpoint
