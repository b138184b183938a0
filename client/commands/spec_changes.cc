// Turns every flag that changes a spec into a path and a value, as if the user had given it with
// --set.
#include "client/commands/spec_changes.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/strings.h"

namespace trainyard::commands {

absl::StatusOr<std::vector<Change>> ChangesOf(const SpecFlags& flags) {
  std::vector<Change> changes;
  for (const std::string& text : flags.set) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set '", text, "' has no PATH=VALUE; write one such as --set optimizer.sgd.lr=0.02"));
    }
    changes.push_back({std::string(absl::StripAsciiWhitespace(text.substr(0, equals))),
                       std::string(absl::StripAsciiWhitespace(text.substr(equals + 1)))});
  }
  if (flags.devices > 0) changes.push_back({"devices.count", absl::StrCat(flags.devices)});
  if (flags.batch > 0) {
    changes.push_back({"train.global_batch", absl::StrCat(flags.batch)});
  }
  if (!flags.elastic.empty()) {
    const std::pair<std::string, std::string> ends =
        absl::StrSplit(flags.elastic, absl::MaxSplits('-', 1));
    int least = 0;
    int most = 0;
    if (!absl::SimpleAtoi(ends.first, &least) || !absl::SimpleAtoi(ends.second, &most) ||
        least < 1 || most < least) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--elastic '", flags.elastic, "' is not a range of devices; write one such as 2-8"));
    }
    if (flags.devices > 0) {
      return absl::InvalidArgumentError("--elastic and --devices exclude each other; give one");
    }
    changes.push_back({"devices.count", ""});
    changes.push_back({"devices.min", absl::StrCat(least)});
    changes.push_back({"devices.max", absl::StrCat(most)});
  }
  if (flags.priority.has_value()) {
    changes.push_back({"priority", absl::StrCat(*flags.priority)});
  }
  if (!flags.project.empty()) changes.push_back({"project", JsonQuote(flags.project)});
  if (!flags.name.empty()) changes.push_back({"name", JsonQuote(flags.name)});
  return changes;
}

}  // namespace trainyard::commands
