// A rank that trains a stage of a pipeline: its executable, and its way into the gang.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/run_dir/assignment.h"
#include "worker/trainer/pipeline_executable.h"
#include "worker/trainer/pipeline_state.h"

namespace trainyard::trainer {

struct Training;

struct PipelinePlace {
  std::vector<std::string> cuts;
  std::vector<StagedTensor> tensors;         // of the whole model
  PipelineExecutable* executable = nullptr;  // the training's
  // Of rank 0: what checkpoints are read into and written from.
  std::unique_ptr<HeldState> whole;
  double predicted_bubble = 0;  // of all stages together
};

// Compiles the stage of training.rank into training.executable, and sets training.pipeline.
// UNIMPLEMENTED for pipelines beside each other.
absl::Status CompileStage(const run_dir::Assignment& assignment, Training& training);
// Connects the stage with its neighbours, and gives it its part of rank 0's whole state.
absl::Status JoinPipeline(Training& training);
// Rank 0's whole state is that of all stages now. A collective.
absl::Status GatherStages(Training& training);

}  // namespace trainyard::trainer
