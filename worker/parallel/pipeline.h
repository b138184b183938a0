// Computes the order in which the stages of a pipeline compute the microbatches of a step, and
// predicts the time of a step in that order. These are pure functions.
//
// In every schedule a stage goes through the microbatches in ascending order, forward and backward.
// So gradients add up in one order, whatever the schedule and the number of stages, and microbatch
// m can live in slot m % PeakSlots.
#pragma once

#include <vector>

#include "absl/types/span.h"

namespace trainyard::parallel {

enum class PipelineSchedule {
  // One microbatch at a time in the whole pipeline: one device computes, the others wait.
  kSequential,
  kGpipe,  // all forward, then all backward (Huang et al. 2018)
  k1F1B,   // forward and backward in turns once the pipeline is full (Narayanan et al. 2019)
};

struct StageAction {
  enum class Kind { kForward, kBackward };
  Kind kind = Kind::kForward;
  int microbatch = 0;

  friend bool operator==(const StageAction&, const StageAction&) = default;
};

// The actions of `stage`, one of `stages`, in a step of `microbatches` >= 0.
std::vector<StageAction> ActionsOf(PipelineSchedule schedule, int stages, int stage,
                                   int microbatches);
// Returns the most microbatches whose activations the stage keeps at a time.
int PeakSlots(PipelineSchedule schedule, int stages, int stage, int microbatches);

// The seconds that one microbatch takes.
struct StageTimes {
  double forward = 0;
  double backward = 0;
};
struct PipelinePrediction {
  double step_seconds = 0;
  // The share of the devices' time in which they wait. With S equal stages and M microbatches it is
  // (S - 1) / (M + S - 1) (Huang et al. 2018, section 2.3).
  double bubble = 0;
  std::vector<double> busy_seconds;  // by stage
};
// Predicts a step. `links` are the seconds in which a microbatch's values cross from stage i to i +
// 1, and their gradients back. A line carries one at a time, while the stages compute.
PipelinePrediction PredictPipeline(PipelineSchedule schedule, absl::Span<const StageTimes> stages,
                                   absl::Span<const double> links, int microbatches);

}  // namespace trainyard::parallel
