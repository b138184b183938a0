// Looks in the log for the reason of an early end, because a daemon has no other way to report it.
#include "client/daemons/log_tail.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"

namespace trainyard::daemons {

std::string CauseFromLog(const std::string& path, int64_t offset) {
  constexpr int64_t kBytesMax = int64_t{64} << 10;
  const auto text = ReadFileRange(path, offset, kBytesMax);
  if (!text.ok()) return "";
  std::string last;
  std::string error;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty()) continue;
    last = std::string(stripped);
    const std::string lower = absl::AsciiStrToLower(stripped);
    if (absl::StrContains(lower, "error") || absl::StrContains(lower, "check failed") ||
        absl::StrContains(lower, "fatal")) {
      error = last;
    }
  }
  return error.empty() ? last : error;
}

}  // namespace trainyard::daemons
