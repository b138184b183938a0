// Rewrites the patterns of a `.trainyardignore` that lies in a folder below, so that they mean the
// same at the top: libgit2 takes further patterns there alone.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::code {

// The names of the files with patterns.
inline constexpr char kGitIgnore[] = ".gitignore";
inline constexpr char kOwnIgnore[] = ".trainyardignore";
inline constexpr int64_t kRulesBytesMax = int64_t{1} << 20;

// Returns the patterns of a file in `folder`, a path without a slash at its ends, or empty for the
// top. A pattern with a slash within is bound to its folder, and any other one holds below it too;
// that is how git reads them.
std::string RulesAtTop(absl::string_view folder, absl::string_view rules);

}  // namespace trainyard::code
