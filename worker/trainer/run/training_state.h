// Turns the state of a training run into the files of a checkpoint, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/backend/backend.h"
#include "worker/trainer/run/state_file.h"

namespace trainyard::trainer {

// Returns a hash over kind, name and shape of all parameters and buffers. Two executables with the
// same digest can load each other's checkpoints.
std::string ModelDigest(const engine::ModelState& executable);

// Returns the path of state.json in a checkpoint's folder.
std::string StatePath(const std::string& checkpoint_dir);

// A copy of all values, taken between two steps, so that it can be written behind the training.
struct StateSnapshot {
  int64_t step = 0;  // updates done
  int64_t epoch = 0;
  RunIdentity identity;
  std::vector<engine::StateTensor> tensors;
  std::vector<std::vector<float>> values;
  std::optional<RecordedEvaluation> evaluation;  // of these values
};
absl::StatusOr<StateSnapshot> TakeSnapshot(const engine::ModelState& executable, int64_t step,
                                           int64_t epoch, const RunIdentity& identity);

// Returns model.safetensors (parameters and buffers under PyTorch's names), optimizer.safetensors,
// state.json, and ema.safetensors if there are moving averages. The latter has the names of the
// model, and its buffers, so that it loads in its place.
std::vector<checkpoint::CheckpointFile> EncodeSnapshot(const StateSnapshot& snapshot);

// The facts about a checkpoint that a run which continues from it must know.
struct RestoredState {
  int64_t step = 0;
  std::string init_digest = {};  // what the run had started from
};

// Writes all values of the checkpoint's folder into the executable. Returns DATA_LOSS for damaged
// files, and INVALID_ARGUMENT, naming the tensor, if the checkpoint belongs to another model or
// optimizer.
absl::StatusOr<RestoredState> RestoreState(const std::string& checkpoint_dir,
                                           engine::ModelState& executable);

}  // namespace trainyard::trainer
