// Converts tensors of other people's files to the floats that the engine keeps.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/safetensors.h"

namespace trainyard::checkpoint {

// Returns F32 unchanged, F16 and BF16 exactly, and F64 rounded to the nearest. Returns
// INVALID_ARGUMENT for other dtypes, and for values that are not finite or too large for a float,
// with the position of the first one.
absl::StatusOr<std::vector<float>> ToFloats(const Tensor& tensor);

}  // namespace trainyard::checkpoint
