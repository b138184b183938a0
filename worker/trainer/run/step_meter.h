// Measures how much time a gang's steps spend on computing and on communication, as metrics of rank
// 0.
//
// A point is the mean over the steps since the last point. At most ten are written each second, so
// that every long step has its own, and small networks are not slowed down.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/trainer/run/ballot.h"
#include "worker/trainer/run/reporter.h"

namespace trainyard::trainer {

// Belongs to the loop's thread. Borrows the reporter.
class StepMeter {
 public:
  explicit StepMeter(Reporter& reporter) : reporter_(reporter) {}

  // Counts a step. Call it after `step`, which ended at `now` (Clock::Uptime). `compute` is the
  // time of this rank. `ballots` are those of the step, and so tell what the others computed in the
  // step before.
  void Add(int64_t step, absl::Duration now, absl::Duration compute,
           const parallel::CommStats& communication, absl::Span<const Ballot> ballots);

 private:
  void Report(int64_t step);

  Reporter& reporter_;
  absl::Duration reported_;  // the time of the last report
  absl::Duration ranks_reported_;
  // Sums since the last report.
  int64_t steps_ = 0;
  absl::Duration compute_, total_, exposed_;
  int64_t bytes_ = 0;
};

}  // namespace trainyard::trainer
