// Reads and writes durations as people write them: a number and a unit, "90s", "1.5 h", "2 days".
// The unit is never left out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard {

// Parses a duration. Units are ms, s, min, h, d and their words (seconds, minutes, hours, days).
// Returns INVALID_ARGUMENT with the value and the accepted units otherwise. Negative and infinite
// durations are refused.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// Returns a text with two units at most: "1h 04m", "3m 20s", "12.3s", "150ms".
std::string DurationText(absl::Duration duration);

}  // namespace trainyard
