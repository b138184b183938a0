// Finds out how much memory a process may use. In a container that is less than the machine has.
// The limits of control groups, version 1 and 2, are looked up from the process's own group to the
// root.
#include "common/base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"

namespace trainyard {
namespace {

// Reads a file of /proc or /sys that contains a word or a few lines.
constexpr int64_t kSmallFileBytes = 64 << 10;

}  // namespace

int64_t AllowedMemory() {
  const int64_t machine =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const auto membership = ReadFile("/proc/self/cgroup", kSmallFileBytes);
  if (!membership.ok()) return machine;
  return std::min(machine, CgroupMemoryLimit(*membership, "/sys/fs/cgroup").value_or(machine));
}

std::optional<int64_t> CgroupMemoryLimit(absl::string_view membership, const std::string& root) {
  std::optional<int64_t> limit;
  for (const absl::string_view line : absl::StrSplit(membership, '\n', absl::SkipEmpty())) {
    // A line is number:controllers:path. Version 2 has the number 0 and names no controllers.
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool unified = parts[0] == "0" && parts[1].empty();
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    const bool memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (!unified && !memory) continue;
    const std::string base = unified ? root : JoinPath(root, "memory");
    const char* const file = unified ? "memory.max" : "memory.limit_in_bytes";
    // Inside a container the path may not exist, but its root does.
    std::string path(absl::StripSuffix(parts[2], "/"));
    while (true) {
      const auto text = ReadFile(absl::StrCat(base, path, "/", file), kSmallFileBytes);
      int64_t bytes = 0;
      if (text.ok() && absl::SimpleAtoi(*text, &bytes) && bytes > 0) {
        limit = std::min(limit.value_or(bytes), bytes);
      }
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return limit;
}

int64_t AllowedProcessors() {
  const auto membership = ReadFile("/proc/self/cgroup", kSmallFileBytes);
  return membership.ok() ? CgroupProcessorLimit(*membership, "/sys/fs/cgroup").value_or(0) : 0;
}

std::optional<int64_t> CgroupProcessorLimit(absl::string_view membership, const std::string& root) {
  std::optional<int64_t> limit;
  for (const absl::string_view line : absl::StrSplit(membership, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, "0::")) continue;
    std::string path(absl::StripSuffix(line.substr(3), "/"));
    while (true) {
      const auto text = ReadFile(absl::StrCat(root, path, "/cpu.max"), kSmallFileBytes);
      const std::string words_of = text.ok() ? *text : "";
      const std::vector<absl::string_view> words =
          absl::StrSplit(words_of, absl::ByAnyChar(" \n"), absl::SkipEmpty());
      int64_t quota = 0;
      int64_t period = 0;
      if (words.size() == 2 && absl::SimpleAtoi(words[0], &quota) &&
          absl::SimpleAtoi(words[1], &period) && quota > 0 && period > 0) {
        const int64_t processors = std::max<int64_t>(quota / period, 1);
        limit = std::min(limit.value_or(processors), processors);
      }
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return limit;
}

}  // namespace trainyard
