// Learns how long a step takes, and so how long others may wait for a rank before it counts as
// stuck. It does no I/O.
//
//   collective limit   max(20 medians, within [10 s, 20 s]; 5 medians): how long a rank waits for
//                      another one in a collective
//   silence            the limit, one step and a margin: how long the rank itself says nothing in
//                      progress.json. Longer than the limit, so that a rank that only waits for a
//                      stuck one has time to say so.
//
// With steps of up to four seconds a stuck rank is known within 30 s; with longer ones within six
// steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace trainyard::trainer {

// The pace. The class is not thread-safe.
class StepPace {
 public:
  // The limit before enough steps are known, since the first ones may warm up caches and files.
  static constexpr absl::Duration kFirstLimit = absl::Seconds(60);
  // The limit when ranks compile for new numbers of rows: before the first step, and when replicas
  // have moved.
  static constexpr absl::Duration kCompileLimit = absl::Minutes(3);
  // The limit of a round in which ranks measure the kernels that the others then take over. The
  // supervisor lets a rank that starts be silent for half an hour.
  static constexpr absl::Duration kMeasureLimit = absl::Minutes(25);
  // A step after a checkpoint may take at least this long: rank 0 copies the state, and waits for
  // the checkpoint before if that is still being written.
  static constexpr absl::Duration kCheckpointLimit = absl::Seconds(23);

  // Counts a step that took this long, including the time in which it waited for others.
  void Add(absl::Duration step);

  // Returns the median of the last steps, or zero before three are known. One step that took long,
  // for a checkpoint or a busy machine, changes nothing.
  absl::Duration median() const { return median_; }
  absl::Duration CollectiveLimit() const;
  // Returns the limit of a collective in the step after a checkpoint.
  absl::Duration LimitAfterCheckpoint() const;
  // Returns the silence between two records of progress if collectives have `limit`.
  absl::Duration Silence(absl::Duration limit) const;
  // Returns the silence between two batches of an evaluation, the slowest of which took this long.
  static absl::Duration SilenceInEvaluation(absl::Duration slowest);

 private:
  static constexpr size_t kWindow = 31;

  std::array<absl::Duration, kWindow> steps_;
  uint64_t count_ = 0;
  absl::Duration median_;
};

}  // namespace trainyard::trainer
