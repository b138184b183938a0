// Processes as /proc shows them: who runs, whose child it is, and whether a pid still means the
// process that it meant before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// One line of /proc/<pid>/stat. Pid and start ticks together are unique during one boot.
struct ProcessInfo {
  int64_t pid = 0;
  int64_t parent = 0;
  int64_t group = 0;
  char state = 0;           // 'Z' for one that has ended and was not reaped
  int64_t start_ticks = 0;  // clock ticks between boot and its start

  friend bool operator==(const ProcessInfo&, const ProcessInfo&) = default;
};

// The content of /proc/<pid>/stat. INVALID_ARGUMENT where it is not of that form. The name of the
// program may hold blanks and parentheses.
absl::StatusOr<ProcessInfo> ParseProcessStat(absl::string_view text);

// NOT_FOUND where there is no such process.
absl::StatusOr<ProcessInfo> ReadProcess(int64_t pid);
// All processes that can be seen, ascending by pid.
std::vector<ProcessInfo> ListProcesses();
// Those of `processes` that descend from `root`, without `root` itself and without the dead.
std::vector<ProcessInfo> DescendantsOf(int64_t root, const std::vector<ProcessInfo>& processes);

// The value of `name` in the environment with which the process was started; empty where it has
// none, or is of another user.
std::string ProcessVariable(int64_t pid, absl::string_view name);

// Changes with every boot of the machine.
std::string BootId();

}  // namespace trainyard
