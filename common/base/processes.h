// Reads processes from /proc: which ones run, whose children they are, and whether a pid still
// belongs to the process that it belonged to before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// The content of /proc/<pid>/stat. Pid and start ticks together are unique during one boot.
struct ProcessInfo {
  int64_t pid = 0;
  int64_t parent = 0;
  int64_t group = 0;
  char state = 0;           // 'Z' for a process that has ended and was not reaped
  int64_t start_ticks = 0;  // clock ticks between boot and its start

  friend bool operator==(const ProcessInfo&, const ProcessInfo&) = default;
};

// Parses the content of /proc/<pid>/stat. The name of the program may contain blanks and
// parentheses. Returns INVALID_ARGUMENT if the text has another form.
absl::StatusOr<ProcessInfo> ParseProcessStat(absl::string_view text);

// Returns NOT_FOUND if there is no such process.
absl::StatusOr<ProcessInfo> ReadProcess(int64_t pid);
// Returns all visible processes, in ascending order of their pids.
std::vector<ProcessInfo> ListProcesses();
// Returns those of `processes` that descend from `root`, without `root` itself and without dead
// ones.
std::vector<ProcessInfo> DescendantsOf(int64_t root, const std::vector<ProcessInfo>& processes);

// Returns true if the process belongs to `uid` in every respect: its real, effective, saved and
// file uids.
bool IsProcessOf(int64_t pid, uint32_t uid);

// Returns the value of `name` in the environment with which the process was started. It is empty if
// the variable is unset, or if the process belongs to another user.
std::string ProcessVariable(int64_t pid, absl::string_view name);

// Returns a text that changes with every boot of the machine.
std::string BootId();

}  // namespace trainyard
