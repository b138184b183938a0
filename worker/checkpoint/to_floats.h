// Tensors of other people's files as the floats that the engine keeps.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/safetensors.h"

namespace trainyard::checkpoint {

// F32 as it is, F16 and BF16 exactly, F64 rounded to the nearest. INVALID_ARGUMENT for other
// dtypes, and for values that are not finite or too large for a float, with the first one's
// position.
absl::StatusOr<std::vector<float>> ToFloats(const Tensor& tensor);

}  // namespace trainyard::checkpoint
