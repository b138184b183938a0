// Loads the weights from which a run starts, from a file of another job or of PyTorch.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::trainer {

// The places where initial weights may lie.
struct InitFolders {
  std::string datasets = {};    // for init.checkpoint; empty if this host has no data sets
  std::string checkpoint = {};  // the checkpoint of init.job; empty if the server sent none
};

// Writes the tensors of init.checkpoint, a safetensors file below the folder of data sets, or those
// of the weights of init.job, over the parameters and buffers of `executable`. Those under a prefix
// of init.skip stay as they are.
// Returns the hash of the file. Returns NOT_FOUND (INIT_NOT_FOUND) if there is no file, DATA_LOSS
// if it is damaged, and INVALID_ARGUMENT (INVALID_SPEC) if its hash is not init.digest or if it
// belongs to another model. The message then names what is missing, what is unexpected and what has
// another shape.
absl::StatusOr<std::string> LoadInitialWeights(const v1::InitSpec& init, const InitFolders& folders,
                                               engine::ModelState& executable);

}  // namespace trainyard::trainer
