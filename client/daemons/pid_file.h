// Pid files record the process's start time and the boot beside its pid, so that a process that was
// given the same pid later is never signalled.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"

namespace trainyard::daemons {

// Identifies one process, even after its pid was given to another one.
struct ProcessId {
  pid_t pid = 0;
  // Clock ticks between the boot and the start of the process (/proc/PID/stat, field 22).
  int64_t start_ticks = 0;
  // The content of /proc/sys/kernel/random/boot_id.
  std::string boot_id;
  // A free text: the address of a server, or the name of a worker.
  std::string note;
};

// Returns NOT_FOUND if no such process runs. A zombie does not run.
absl::StatusOr<ProcessId> IdentifyProcess(pid_t pid);

absl::Status WritePidFile(const std::string& path, const ProcessId& process);
// Returns the process of the file if it still runs, or nothing if the file or its process is gone.
std::optional<ProcessId> RunningProcess(const std::string& path);

// Sends SIGTERM, and SIGKILL after `grace`, and waits until the process is gone. No other process
// is ever signalled.
absl::Status StopProcess(const ProcessId& process, absl::Duration grace, Clock& clock);

}  // namespace trainyard::daemons
