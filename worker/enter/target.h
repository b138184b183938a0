// Finds the process of a rank's program, and what a process beside it must have in common with it:
// namespaces, control group, root, folder, environment, limits, processors.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard::enter {

// The rank as its supervisor has started it.
struct RankProcess {
  int64_t pid = 0;
  int64_t start_ticks = 0;
  uid_t uid = 0;  // of its owner
};

struct Target {
  UniqueFd rank;     // a pidfd of the rank: it can be read once that has ended
  UniqueFd process;  // a pidfd of the program
  int64_t pid = 0;
  int namespaces = 0;  // CLONE_NEW... of those that are not ours
  UniqueFd root;
  UniqueFd directory;
  // The path of its group below the mount, if that belongs to an attempt; else empty. Only root may
  // join it where it was delegated to the daemon alone. Groups of services and sessions do not
  // matter, and may have changed since the daemon was started anew.
  std::string cgroup;
  std::vector<std::string> environment;
  cpu_set_t processors{};
  int niceness = 0;
  mode_t umask = 0;
  bool has_no_new_privileges = false;
};

// Looks at the rank, with the rights of its owner: others may not look at it. No process that
// belongs to anybody but its owner is taken. Returns NOT_FOUND if the rank has ended.
absl::StatusOr<Target> FindTarget(const RankProcess& rank);

// Returns the path of the control group (version 2) in the content of /proc/<pid>/cgroup, if it is
// that of an attempt or one below it, or an empty text.
std::string AttemptGroupPath(absl::string_view text);

}  // namespace trainyard::enter
