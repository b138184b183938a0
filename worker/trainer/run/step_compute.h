// Forward and backward of what a rank hosts in one step, into its sums.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/sum_tree.h"
#include "worker/trainer/pipeline/pipeline_executable.h"
#include "worker/trainer/run/row_source.h"
#include "worker/trainer/run/trace.h"

namespace trainyard::trainer {

// One thread uses it. Borrows what it is made of.
class StepCompute {
 public:
  // [0, end) of the rank's sums is final. An error ends the step.
  using Ready = std::function<absl::Status(int64_t end)>;

  StepCompute(engine::Executable& executable, Trace& trace, Clock& clock)
      : executable_(executable), trace_(trace), clock_(clock) {}

  // Sums replica by replica, in this order, in the place of adding all parts up as they come.
  void set_sums(parallel::LocalSums sums) { sums_ = std::move(sums); }

  // Others wait for this rank's part in statistics, even where it has no rows.
  void set_syncs_statistics(bool syncs) { syncs_statistics_ = syncs; }

  // The executable is a stage.
  void set_pipeline(PipelineExecutable* pipeline) { pipeline_ = pipeline; }

  // Leaves the sums of all parts in the executable; where there are none, zeros. `ready`, which may
  // be empty, is told of growing ends while the last part is computed, at last of the arena's.
  absl::Status Run(const std::vector<Part>& parts, const Ready& ready);

  // That the last Run took, without what `ready` did meanwhile.
  absl::Duration compute_time() const { return compute_time_; }

 private:
  absl::Status Accumulate(const Part& part, const std::vector<int>& slots, const Ready& ready);
  // Each part a microbatch, so that all stages compute.
  absl::Status RunThroughStages(const std::vector<Part>& parts, const Ready& ready);
  // Whether every part is a replica of its own, and no replica of a bitwise run is without rows.
  bool SuitsStages(const std::vector<Part>& parts) const;
  absl::Status RunReplicas(const std::vector<Part>& parts, const Ready& ready);
  absl::Status AddSlots(const std::vector<int>& slots, int64_t begin, int64_t end);
  absl::Status Tell(const Ready& ready, int64_t end);
  int64_t size() { return static_cast<int64_t>(executable_.reduction().size()); }

  engine::Executable& executable_;
  Trace& trace_;
  Clock& clock_;
  std::optional<parallel::LocalSums> sums_;
  bool syncs_statistics_ = false;
  PipelineExecutable* pipeline_ = nullptr;
  absl::Duration compute_time_;
  absl::Duration told_time_;  // in `ready`
};

}  // namespace trainyard::trainer
