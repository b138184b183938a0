// Labels of workers: "zone=a" says where a worker stands, and jobs ask for it by `devices.labels`.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr size_t kLabelBytesMax = 63;  // of a key, and of a value
inline constexpr size_t kLabelsMax = 64;      // of one worker

// Keys are [a-z0-9][a-z0-9._/-]* of at most 63 bytes; values are UTF-8 without control characters,
// of 0 to 63 bytes. INVALID_ARGUMENT with what was expected.
absl::Status CheckLabel(absl::string_view key, absl::string_view value);

// "key=value"; the value may hold further '='.
absl::StatusOr<std::pair<std::string, std::string>> ParseLabel(absl::string_view text);

}  // namespace trainyard
