// Finds out how much memory, and how many processors, a process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the memory that this process and its children may use: the memory of the machine, or less
// if a control group has a limit.
int64_t AllowedMemory();
// Returns the smallest memory limit of the control groups that `membership` names (the text of
// /proc/self/cgroup, versions 1 and 2), from the leaf up to `root` (/sys/fs/cgroup). Returns
// nothing if none of them has a limit.
std::optional<int64_t> CgroupMemoryLimit(absl::string_view membership, const std::string& root);

// Returns the processors that the control groups of this process grant it at a time (cpu.max of
// version 2), at least 1; or 0 if they do not limit it.
int64_t AllowedProcessors();
// Returns the smallest such limit of the groups that `membership` names, or nothing if none has
// one.
std::optional<int64_t> CgroupProcessorLimit(absl::string_view membership, const std::string& root);

}  // namespace trainyard
