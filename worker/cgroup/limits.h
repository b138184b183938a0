// Limits what the processes of a control group may use, and tells what they have used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/cgroup/group.h"

namespace trainyard::cgroup {

struct Limits {
  int64_t memory_bytes = 0;        // 0 for no limit
  int64_t processes = 0;           // threads count too; 0 for no limit
  std::vector<int64_t> cpus = {};  // the processors; empty for no limit
  // The processors' worth of time, if that is what can be limited; 0 for one of each in `cpus`.
  int64_t cpu_shares = 0;
  // If memory runs out, all processes of the group end together, so that none waits in vain for one
  // that was chosen.
  bool ends_together = false;

  friend bool operator==(const Limits&, const Limits&) = default;
};

// Sets the limits. One whose controller the group lacks is an error, except for processors: these
// are a share of time where sets of them were not delegated, and nothing where neither was.
absl::Status SetLimits(const Group& group, const Limits& limits);

// The memory of a group.
struct MemoryUse {
  int64_t kills = 0;        // how many processes the kernel has killed for want of memory
  int64_t peak_bytes = 0;   // the most that was in use at a time; 0 before Linux 5.19
  int64_t limit_bytes = 0;  // 0 for no limit

  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

absl::StatusOr<MemoryUse> ReadMemoryUse(const Group& group);

// Says what a rank has used when its memory ran out, and what to do: "used 1.0 GiB of 1.0 GiB;
// ...".
std::string OutOfMemoryText(const MemoryUse& use);

}  // namespace trainyard::cgroup
