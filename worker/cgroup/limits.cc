// Writes limits and reads accounts. The names of the files are those of the kernel's documentation,
// Documentation/admin-guide/cgroup-v2.rst.
#include "worker/cgroup/limits.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::cgroup {
namespace {

// The period of cpu.max, in microseconds, which is the kernel's own.
constexpr int64_t kPeriod = 100'000;

int64_t NumberIn(const Group& group, const char* file) {
  int64_t number = 0;
  const auto text = group.Read(file);
  return text.ok() && absl::SimpleAtoi(*text, &number) ? number : 0;  // "max" is no number
}

absl::Status LimitProcessors(const Group& group, const std::vector<int64_t>& cpus, int64_t shares) {
  if (cpus.empty()) return absl::OkStatus();
  if (shares == 0) shares = static_cast<int64_t>(cpus.size());
  if (group.Has("cpuset.cpus")) return group.Write("cpuset.cpus", absl::StrJoin(cpus, ","));
  if (!group.Has("cpu.max")) return absl::OkStatus();
  return group.Write("cpu.max", absl::StrCat(shares * kPeriod, " ", kPeriod));
}

}  // namespace

absl::Status SetLimits(const Group& group, const Limits& limits) {
  if (limits.memory_bytes > 0) {
    TY_RETURN_IF_ERROR(group.Write("memory.max", absl::StrCat(limits.memory_bytes)));
    // A rank that swaps is no use to anybody. A kernel without swap has no such file.
    if (group.Has("memory.swap.max")) TY_RETURN_IF_ERROR(group.Write("memory.swap.max", "0"));
  }
  if (limits.ends_together) TY_RETURN_IF_ERROR(group.Write("memory.oom.group", "1"));
  if (limits.processes > 0) {
    TY_RETURN_IF_ERROR(group.Write("pids.max", absl::StrCat(limits.processes)));
  }
  return LimitProcessors(group, limits.cpus, limits.cpu_shares);
}

absl::StatusOr<MemoryUse> ReadMemoryUse(const Group& group) {
  MemoryUse use;
  TY_ASSIGN_OR_RETURN(const std::string events, group.Read("memory.events"));
  for (const absl::string_view line : absl::StrSplit(events, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() == 2 && words[0] == "oom_kill") (void)absl::SimpleAtoi(words[1], &use.kills);
  }
  use.peak_bytes = NumberIn(group, "memory.peak");
  use.limit_bytes = NumberIn(group, "memory.max");
  return use;
}

std::string OutOfMemoryText(const MemoryUse& use) {
  // The machine may have had less than the limit, and then the limit says nothing.
  if (use.limit_bytes == 0) {
    return use.peak_bytes == 0 ? "the memory of the host ran out"
                               : absl::StrCat("the memory of the host ran out when it used ",
                                              FormatBytes(use.peak_bytes));
  }
  // The kernel counts whole pages, so a peak just below the limit is the limit.
  const bool is_all =
      use.peak_bytes == 0 || use.peak_bytes > use.limit_bytes - use.limit_bytes / 64;
  const int64_t used = is_all ? use.limit_bytes : use.peak_bytes;
  return absl::StrCat("used ", FormatBytes(used), " of ", FormatBytes(use.limit_bytes),
                      "; ask for more with resources.memory");
}

}  // namespace trainyard::cgroup
