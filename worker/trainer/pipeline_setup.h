// A rank that trains a stage of a pipeline: its executable, and its way into the gang.
//
// The ranks of a gang form a grid: rank r has stage r % stages of pipeline r / stages. Pipelines
// share the replicas as single devices do, and the ranks of one stage sum their gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/parallel/communicator.h"
#include "worker/run_dir/assignment.h"
#include "worker/trainer/pipeline_executable.h"
#include "worker/trainer/pipeline_state.h"

namespace trainyard::trainer {

struct Training;

struct PipelinePlace {
  int pipeline = 0;
  int stage = 0;
  std::vector<std::string> cuts;
  std::vector<StagedTensor> tensors;         // of the whole model
  PipelineExecutable* executable = nullptr;  // the training's
  // Of rank 0: what checkpoints are read into and written from.
  std::unique_ptr<engine::ModelState> whole;
  double predicted_bubble = 0;  // of all stages together
  // With the ranks of the same stage, by pipeline; null where there is one pipeline.
  std::unique_ptr<parallel::Communicator> siblings;
};

// Compiles the stage of training.rank into training.executable, and sets training.pipeline.
// `shares_memory`: with the other ranks of the gang.
absl::Status CompileStage(const run_dir::Assignment& assignment, bool shares_memory,
                          Training& training);
// Connects the stage with its neighbours and with those of the other pipelines, and gives it its
// part of rank 0's whole state. A collective.
absl::Status JoinPipeline(Training& training);
// Rank 0's whole state is that of all stages of its pipeline now. A collective.
absl::Status GatherStages(Training& training);

}  // namespace trainyard::trainer
