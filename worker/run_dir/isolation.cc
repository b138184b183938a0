// Spells the levels of isolation.
#include "worker/run_dir/isolation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::run_dir {
namespace {

constexpr std::pair<IsolationLevel, absl::string_view> kLevels[] = {
    {IsolationLevel::kProcess, "process"},
    {IsolationLevel::kCgroup, "cgroup"},
    {IsolationLevel::kSandbox, "sandbox"},
    {IsolationLevel::kContainer, "container"},
};

}  // namespace

absl::string_view IsolationName(IsolationLevel level) {
  for (const auto& [value, name] : kLevels) {
    if (value == level) return name;
  }
  return "";
}

std::optional<IsolationLevel> ParseIsolation(absl::string_view name) {
  for (const auto& [value, known] : kLevels) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::string RankGroupName(int rank) {
  return absl::StrCat("rank-", rank);
}

}  // namespace trainyard::run_dir
