// Computes a step through the stages of a pipeline.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/trainer/pipeline/pipeline_executable.h"
#include "worker/trainer/run/step_compute.h"

namespace trainyard::trainer {

class StagedCompute final : public StepCompute {
 public:
  // `computes_replicas_alone` means that the parts of a step are replicas, each a microbatch of its
  // own. Otherwise a step has one part, which the stage cuts into microbatches itself.
  StagedCompute(PipelineExecutable& stage, Trace& trace, Clock& clock, bool computes_replicas_alone)
      : StepCompute(stage, trace, clock, /*syncs_statistics=*/false),
        stage_(stage),
        computes_replicas_alone_(computes_replicas_alone) {}

  // A stage waits for its neighbours in between, which does not count as its own work.
  std::optional<absl::Duration> compute_time() const override { return stage_.times().computed; }

 protected:
  absl::Status Compute(const std::vector<Part>& parts, const Ready& ready) override;

 private:
  bool AreMicrobatches(const std::vector<Part>& parts) const;

  PipelineExecutable& stage_;
  const bool computes_replicas_alone_;
};

}  // namespace trainyard::trainer
