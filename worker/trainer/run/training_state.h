// The state of a training run as the files of a checkpoint, and back.
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

// Hash over kind, name and shape of all parameters and buffers: two executables with the same
// digest can load each other's checkpoints.
std::string ModelDigest(const engine::ModelState& executable);

// state.json of a checkpoint's folder.
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

// model.safetensors (parameters and buffers under PyTorch's names), optimizer.safetensors,
// ema.safetensors where there are moving averages (with the names of the model, and its buffers, so
// that it loads in its place), state.json.
std::vector<checkpoint::CheckpointFile> EncodeSnapshot(const StateSnapshot& snapshot);

// What a run that goes on from a checkpoint must know of it.
struct RestoredState {
  int64_t step = 0;
  std::string init_digest = {};  // what the run had started from
};

// Writes all values of the checkpoint folder into the executable. DATA_LOSS
// for damaged files; INVALID_ARGUMENT naming the tensor where the checkpoint is of another model or
// optimizer.
absl::StatusOr<RestoredState> RestoreState(const std::string& checkpoint_dir,
                                           engine::ModelState& executable);

}  // namespace trainyard::trainer
