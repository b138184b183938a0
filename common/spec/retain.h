// Reads how long a job is kept after its end, as people write it: "forever", "30 d".
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::spec {

// Parses spec.retain. The result is infinite for "forever". Returns INVALID_ARGUMENT, also for 0.
absl::StatusOr<absl::Duration> ParseRetain(absl::string_view text);

}  // namespace trainyard::spec
