// Pid files that know whose pid it was: with the process's start time and the boot, so that a pid
// that the system gave to another process since is never signalled.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"

namespace trainyard::daemons {

// Names one process, also after its pid was given to another one.
struct ProcessId {
  pid_t pid = 0;
  // Clock ticks from the boot to its start (/proc/PID/stat, field 22).
  int64_t start_ticks = 0;
  // /proc/sys/kernel/random/boot_id.
  std::string boot_id;
  // Free text: the address of a server, the name of a worker.
  std::string note;
};

// NOT_FOUND where no such process runs (a zombie does not).
absl::StatusOr<ProcessId> IdentifyProcess(pid_t pid);

absl::Status WritePidFile(const std::string& path, const ProcessId& process);
// The process of the file if it still runs; nothing where the file or its process is gone.
std::optional<ProcessId> RunningProcess(const std::string& path);

// Sends SIGTERM, then SIGKILL after `grace`, and waits until the process is gone. No other process
// is ever signalled.
absl::Status StopProcess(const ProcessId& process, absl::Duration grace, Clock& clock);

}  // namespace trainyard::daemons
