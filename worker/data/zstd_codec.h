// Decodes Zstandard, with a limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::data {

// The content of all frames. DATA_LOSS with the position in `bytes`, also where the content has
// more than `max_bytes`.
absl::StatusOr<std::string> DecodeZstd(absl::string_view bytes, int64_t max_bytes);

}  // namespace trainyard::data
