// Matches names with patterns that people type.
#pragma once

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns true if the pattern matches all of `text`. A `*` in it stands for any text, also an empty
// one.
bool MatchesPattern(absl::string_view text, absl::string_view pattern);

}  // namespace trainyard
