// Adds one word to the durations that people write.
#include "common/spec/retain.h"

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"

namespace trainyard::spec {

absl::StatusOr<absl::Duration> ParseRetain(absl::string_view text) {
  if (text == "forever") return absl::InfiniteDuration();
  const auto time = ParseDuration(text);
  if (time.ok() && *time > absl::ZeroDuration()) return time;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not accepted; expected 'forever', or a time such as '30 d'"));
}

}  // namespace trainyard::spec
