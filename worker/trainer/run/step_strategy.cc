// The one place that asks whether the model is cut.
#include "worker/trainer/run/step_strategy.h"

#include "worker/trainer/run/pipelined_step.h"
#include "worker/trainer/run/whole_step.h"

namespace trainyard::trainer {

absl::StatusOr<std::unique_ptr<StepStrategy>> CompileStep(const RunSetup& setup, int threads) {
  return setup.place.stages > 1 ? PipelinedStep::Compile(setup, threads)
                                : WholeStep::Compile(setup, threads);
}

}  // namespace trainyard::trainer
