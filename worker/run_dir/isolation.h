// Says how strictly the ranks of an attempt are kept apart from the rest of their host. The worker
// decides it when it writes assignment.json; the supervisor and the runner of programs do it.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::run_dir {

// The levels, in order; see v1::Isolation.
enum class IsolationLevel { kUnknown, kProcess, kCgroup, kSandbox, kContainer };

// Returns "process", "cgroup", "sandbox", "container", or "" for kUnknown, and the level of such a
// name.
absl::string_view IsolationName(IsolationLevel level);
std::optional<IsolationLevel> ParseIsolation(absl::string_view name);

struct Isolation {
  IsolationLevel level = IsolationLevel::kUnknown;
  // The name of what runs a sandbox or a container ("bubblewrap", "podman", "apptainer",
  // "charliecloud", "enroot"), and the path of its program.
  std::string runtime = {};
  std::string program = {};
  // The folder of the attempt's control group: "/sys/fs/cgroup/...". Empty if it has none.
  std::string cgroup = {};

  friend bool operator==(const Isolation&, const Isolation&) = default;
};

// The groups below that of an attempt: for its supervisor, and for each rank.
inline constexpr char kSupervisorGroup[] = "supervisor";
std::string RankGroupName(int rank);

}  // namespace trainyard::run_dir
