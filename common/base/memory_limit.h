// How much memory a process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// Memory that this process and its children may use: that of the machine, or less where a control
// group has a limit.
int64_t AllowedMemory();
// The smallest memory limit of the control groups that `membership` names (/proc/self/cgroup,
// versions 1 and 2), from the leaf up to `root` (/sys/fs/cgroup); nothing where none has one.
std::optional<int64_t> CgroupMemoryLimit(absl::string_view membership, const std::string& root);

}  // namespace trainyard
