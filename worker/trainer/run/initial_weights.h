// Weights that a run starts from, out of a file that it did not write: of another job, or of
// PyTorch.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::trainer {

// Writes the tensors of init.checkpoint, a safetensors file below `dataset_dir`, over the
// parameters and buffers of `executable`; those under a prefix of init.skip stay as they are.
// Returns the hash of the file. NOT_FOUND where it is not there; DATA_LOSS where it is damaged;
// INVALID_ARGUMENT (INVALID_SPEC) where its hash is not init.digest, and, with what is missing,
// what is unexpected and what has another shape, where it is of another model.
absl::StatusOr<std::string> LoadInitialWeights(const v1::InitSpec& init,
                                               const std::string& dataset_dir,
                                               engine::ModelState& executable);

}  // namespace trainyard::trainer
