// Decodes gzip, with a limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::data {

bool IsGzip(absl::string_view bytes);

// Returns the content of one gzip member. Its checksum must match, and nothing may follow it.
// Returns DATA_LOSS with the position in `bytes`, also if the content has more than `max_bytes`.
absl::StatusOr<std::string> DecodeGzip(absl::string_view bytes, int64_t max_bytes);

}  // namespace trainyard::data
