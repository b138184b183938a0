// Reads the job's spec: from assignment.json, from a checkpoint's state.json, or from a file that
// --plan names.
//
// The proto files are the one place where a field's limits and default stand, and common/spec
// enforces them here as it does in the server. The engine, the data sets and the collectives know
// nothing of protobuf: model_setup and data_setup turn the spec into their own structs.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::trainer {

// Reads a JobSpec in proto JSON, with the proto's field names, and fills in its defaults. Fields
// that this version does not know are ignored. Returns INVALID_ARGUMENT (INVALID_SPEC) with all
// violations, each with its path ("spec.train.global_batch"), and for text that is no such JSON.
absl::StatusOr<v1::JobSpec> ParseSpec(absl::string_view spec_json);

// Returns true if the spec asks for the same bits on any devices.
bool IsBitwise(const v1::JobSpec& spec);

// The input and the output of a network.
struct ModelEnds {
  std::vector<int64_t> input;  // channels, height, width; or the number of tokens in a sample
  int64_t classes = 0;         // for tokens, the vocabulary
  int64_t vocabulary = 0;      // the number of different tokens; 0 if the input is an image
};
// Returns the ends of a model. `model` must have its defaults.
ModelEnds EndsOf(const v1::ModelSpec& model);

}  // namespace trainyard::trainer
