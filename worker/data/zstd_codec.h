// Decodes Zstandard, with a limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::data {

// Returns the content of all frames. Returns DATA_LOSS with the position in `bytes`, also if the
// content has more than `max_bytes`.
absl::StatusOr<std::string> DecodeZstd(absl::string_view bytes, int64_t max_bytes);

}  // namespace trainyard::data
