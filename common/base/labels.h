// Defines labels of workers: "zone=a" says where a worker stands, and jobs ask for it by
// `devices.labels`.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr size_t kLabelBytesMax = 63;  // of a key or a value
inline constexpr size_t kLabelsMax = 64;      // of one worker

// Checks a label. Keys are [a-z0-9][a-z0-9._/-]* of at most 63 bytes; values are UTF-8 without
// control characters, of 0 to 63 bytes. Returns INVALID_ARGUMENT with what was expected otherwise.
absl::Status CheckLabel(absl::string_view key, absl::string_view value);

// Parses "key=value". The value may contain further '='.
absl::StatusOr<std::pair<std::string, std::string>> ParseLabel(absl::string_view text);

}  // namespace trainyard
