// Compares two texts line by line.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::code {

// Returns how `after` differs from `before`, as `git diff` prints it. For what is no text it says
// only that it differs.
std::string TextDiff(const std::string& path, absl::string_view before, absl::string_view after);

}  // namespace trainyard::code
