// Plans a pipeline without training: finds where the model is cut, what each stage holds and how
// long it computes, and how long a step takes in the schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/pipeline.h"
#include "worker/trainer/plan/machine_speed.h"

namespace trainyard::trainer {

struct PlannedStage {
  std::string first_layer;
  std::string last_layer;
  int64_t parameters = 0;
  int slots = 1;  // the number of microbatches of which it keeps activations
  engine::MemoryPlan memory;
  parallel::StageTimes times;  // of one microbatch
  std::vector<engine::Fallback> fallbacks = {};
};

struct PlannedPipeline {
  std::string name;  // of the job
  std::string backend;
  engine::Precision precision = engine::Precision::kF32;
  std::string schedule;
  int threads = 1;
  int pipelines = 1;
  int64_t global_batch = 0;
  int microbatches = 1;
  int64_t microbatch_rows = 1;  // of the largest
  std::vector<std::string> cuts;
  bool is_chosen = false;  // the cuts are not the spec's
  std::vector<PlannedStage> stages;
  int64_t memory_limit = 0;  // of a device
  parallel::PipelinePrediction prediction;
};

// The ranks of a pipeline must choose the same cuts, whatever each of them could measure. So they
// plan for this machine, of which only the ratio of arithmetic to memory traffic matters.
inline constexpr MachineSpeed kCommonMachine = {.flops_per_second = 1e11, .bytes_per_second = 1e10};

struct PipelinePlanOptions {
  std::string backend = "cpu";
  int threads = 1;
  int64_t memory_bytes = 0;  // of a device
  // If it is not known, no times are predicted, and cuts are chosen for kCommonMachine.
  MachineSpeed machine = {};
  // Speeds of the stages' devices, relative to `machine`; if empty, all are 1.
  std::vector<double> speeds = {};
};

parallel::PipelineSchedule ScheduleOf(v1::PipelineSchedule schedule);

// Plans a spec that has stages. Returns INVALID_ARGUMENT for impossible cuts, and
// RESOURCE_EXHAUSTED if a stage does not fit, which the message names, or if no cuts let all stages
// fit.
absl::StatusOr<PlannedPipeline> PlanPipeline(const v1::JobSpec& spec,
                                             const PipelinePlanOptions& options);

}  // namespace trainyard::trainer
