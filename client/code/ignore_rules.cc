// Libgit2 decides what a pattern matches; this file decides only where it begins.
#include "client/code/ignore_rules.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace trainyard::code {
namespace {

// The name of a folder is no pattern.
std::string Escaped(absl::string_view folder) {
  std::string escaped;
  for (const char c : folder) {
    if (absl::string_view("\\*?[]!# ").find(c) != absl::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// libgit2 drops a pattern with '!' that has no wildcard and takes nothing back of the same file.
// The file that it takes something back of may be a `.gitignore`, so the last letter becomes a set
// of letters.
std::string WithWildcard(absl::string_view pattern) {
  const absl::string_view name = absl::StripSuffix(pattern, "/");
  if (name.find_first_of("*?[\\") != name.npos) return std::string(pattern);
  return absl::StrCat(name.substr(0, name.size() - 1), "[", name.substr(name.size() - 1), "]",
                      pattern.substr(name.size()));
}

}  // namespace

std::string RulesAtTop(absl::string_view folder, absl::string_view rules) {
  const std::string prefix = folder.empty() ? "/" : absl::StrCat("/", Escaped(folder), "/");
  std::string result;
  for (absl::string_view line : absl::StrSplit(rules, '\n')) {
    line = absl::StripSuffix(line, "\r");
    if (line.empty() || line[0] == '#') continue;
    absl::string_view pattern = line;
    const bool is_negated = absl::ConsumePrefix(&pattern, "!");
    if (pattern.empty() || pattern == "/") continue;
    const bool is_bound = absl::StripSuffix(pattern, "/").find('/') != pattern.npos;
    absl::ConsumePrefix(&pattern, "/");
    absl::StrAppend(&result, is_negated ? "!" : "", prefix, is_bound ? "" : "**/",
                    is_negated && is_bound ? WithWildcard(pattern) : std::string(pattern), "\n");
  }
  return result;
}

}  // namespace trainyard::code
