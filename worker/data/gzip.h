// Decodes gzip, with a limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::data {

bool IsGzip(absl::string_view bytes);

// The content of one gzip member, whose checksum must agree and behind which nothing may follow.
// DATA_LOSS with the position in `bytes`, also where the content has more than `max_bytes`.
absl::StatusOr<std::string> DecodeGzip(absl::string_view bytes, int64_t max_bytes);

}  // namespace trainyard::data
