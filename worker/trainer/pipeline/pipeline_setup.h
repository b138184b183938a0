// Compiles a rank's stage of a pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/trainer/pipeline/pipeline_executable.h"
#include "worker/trainer/pipeline/pipeline_state.h"
#include "worker/trainer/plan/model_setup.h"

namespace trainyard::trainer {

struct StageTarget {
  std::string backend;
  int rank = 0;
  int world_size = 1;
  int replicas = 1;
  int threads = 1;
  int64_t memory_bytes = 0;    // of the rank's device
  bool shares_memory = false;  // with the other ranks of the gang
  std::string choices = {};    // of another rank with the same stage
};

struct CompiledStage {
  CompiledModel model;
  PipelineExecutable* executable = nullptr;  // model.executable
  std::vector<StagedTensor> tensors;         // of the whole model
  double predicted_bubble = 0;               // of all stages together
};

// Compiles a stage. Rank r gets stage r % stages. Returns RESOURCE_EXHAUSTED if the stage does not
// fit into the memory.
absl::StatusOr<CompiledStage> CompileStage(v1::JobSpec spec, const StageTarget& target);

}  // namespace trainyard::trainer
