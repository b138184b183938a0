// Turns every flag that changes a spec into a path and a value, as if the user had given it with
// --set.
#include "client/commands/spec_changes.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/selector.h"
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
  if (flags.devices.has_value()) {
    changes.push_back({"devices.count", absl::StrCat(*flags.devices)});
  }
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
    if (flags.devices.has_value()) {
      return absl::InvalidArgumentError("--elastic and --devices exclude each other; give one");
    }
    changes.push_back({"devices.count", ""});
    changes.push_back({"devices.min", absl::StrCat(least)});
    changes.push_back({"devices.max", absl::StrCat(most)});
  }
  if (flags.priority.has_value()) {
    changes.push_back({"priority", absl::StrCat(*flags.priority)});
  }
  if (flags.cpus.has_value()) changes.push_back({"resources.cpus", absl::StrCat(*flags.cpus)});
  if (!flags.outputs.empty()) {
    const auto quote = [](std::string* out, const std::string& pattern) {
      absl::StrAppend(out, JsonQuote(pattern));
    };
    changes.push_back(
        {"outputs", absl::StrCat("[", absl::StrJoin(flags.outputs, ",", quote), "]")});
  }
  for (const auto& [path, text] :
       {std::pair<const char*, const std::string&>("resources.memory", flags.memory),
        {"time_limit", flags.time_limit},
        {"idle_limit", flags.idle_limit},
        {"program.isolation", flags.isolation},
        {"project", flags.project}}) {
    if (!text.empty()) changes.push_back({path, JsonQuote(text)});
  }
  for (const std::string& to : flags.notify) {
    const bool is_url = absl::StrContains(to, "://");
    if (!is_url && !absl::StrContains(to, '@')) {
      return absl::InvalidArgumentError(
          absl::StrCat("--notify '", to,
                       "' is neither a mail address nor a URL; `trainyard notify ls` lists "
                       "those who get word of all your jobs"));
    }
    changes.push_back({is_url ? "notify.webhook" : "notify.mail", JsonQuote(to)});
  }
  if (!flags.name.empty()) {
    if (const auto means = ParseSelector(flags.name); means.ok() && means->front().name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--name '", flags.name, "' would never name the job: other verbs read it as ",
          means->front().back >= 0 ? "one of the newest jobs" : "the number of a job",
          "; choose a name that begins with a letter, such as 'job-", flags.name, "'"));
    }
    changes.push_back({"name", JsonQuote(flags.name)});
  }
  if (!flags.code.empty()) {
    // The path of a spec is relative to the spec, and that of the command line to here.
    std::error_code failed;
    const std::string path = std::filesystem::absolute(flags.code, failed).string();
    changes.push_back({"program.code", JsonQuote(failed ? flags.code : path)});
  }
  return changes;
}

}  // namespace trainyard::commands
