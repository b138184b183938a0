// Computes forward and backward of the rows that a rank hosts in one step, into the rank's sums.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/sum_tree.h"
#include "worker/trainer/run/row_source.h"
#include "worker/trainer/run/trace.h"

namespace trainyard::trainer {

// Only one thread may use it. It borrows its arguments.
class StepCompute {
 public:
  // Called when [0, end) of the rank's sums is final. An error ends the step.
  using Ready = std::function<absl::Status(int64_t end)>;

  // `syncs_statistics` means that other ranks wait for this rank's part in the statistics of batch
  // norm, even if it has no rows.
  StepCompute(engine::Executable& executable, Trace& trace, Clock& clock, bool syncs_statistics)
      : executable_(executable),
        trace_(trace),
        clock_(clock),
        syncs_statistics_(syncs_statistics) {}
  virtual ~StepCompute() = default;

  // Takes the sums replica by replica, in this order. Without it all parts are added up as they
  // come.
  void set_sums(std::optional<parallel::LocalSums> sums) { sums_ = std::move(sums); }

  // Leaves the sums of all parts in the executable, or zeros if there are none. `ready`, which may
  // be empty, is called with growing ends while the last part is computed, and finally with the
  // arena's end.
  absl::Status Run(const std::vector<Part>& parts, const Ready& ready);

  // Returns how long this rank computed in the last step, without the time spent in `ready`, or
  // nothing if a device computed, of which only the exchange knows the time.
  virtual std::optional<absl::Duration> compute_time() const { return compute_time_; }

 protected:
  virtual absl::Status Compute(const std::vector<Part>& parts, const Ready& ready);

  const std::optional<parallel::LocalSums>& sums() const { return sums_; }
  absl::Status AddSlots(const std::vector<int>& slots, int64_t begin, int64_t end);
  absl::Status Tell(const Ready& ready, int64_t end);
  int64_t size() { return static_cast<int64_t>(executable_.reduction().size()); }

 private:
  absl::Status Accumulate(const Part& part, const std::vector<int>& slots, const Ready& ready);
  // Runs `pass`, and for each range that it finds final adds the slots and calls `ready`.
  absl::Status RunPass(
      const std::function<absl::Status(const engine::ReadyCallback& on_ready)>& pass,
      const std::vector<int>& slots, const Ready& ready);
  absl::Status RunReplicas(const std::vector<Part>& parts, const Ready& ready);

  engine::Executable& executable_;
  Trace& trace_;
  Clock& clock_;
  const bool syncs_statistics_;
  std::optional<parallel::LocalSums> sums_;
  std::optional<absl::Duration> compute_time_;
  absl::Duration told_time_;  // in `ready`
  bool is_told_ = false;      // an exchange is told what is ready
};

}  // namespace trainyard::trainer
