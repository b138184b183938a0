#include "client/commands/spec_changes.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::commands {

absl::StatusOr<std::vector<Change>> ChangesOf(const Options& options) {
  std::vector<Change> changes;
  for (const std::string& text : options.set) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set '", text, "' has no PATH=VALUE; write one such as --set optimizer.sgd.lr=0.02"));
    }
    changes.push_back({std::string(absl::StripAsciiWhitespace(text.substr(0, equals))),
                       std::string(absl::StripAsciiWhitespace(text.substr(equals + 1)))});
  }
  if (options.devices > 0) changes.push_back({"devices.count", absl::StrCat(options.devices)});
  if (!options.name.empty()) changes.push_back({"name", JsonQuote(options.name)});
  return changes;
}

}  // namespace trainyard::commands
