// Starts a program as another user, with no way back to this daemon's rights.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/agent/accounts.h"

namespace trainyard::agent {

// The limits of the processes of an owner.
struct ProcessLimits {
  int64_t core_bytes = 0;     // of a core file; 0 means that none is written
  int64_t open_files = 4096;  // no more than the limit of this daemon
  // The number of processes and threads of the user on this host; 0 for the limit of this daemon.
  int64_t processes = 0;
};

struct LaunchOptions {
  std::vector<std::string> words;  // the program's path and its arguments
  std::string directory;           // where it starts
  std::string cache_home;          // XDG_CACHE_HOME
  int log = -1;                    // stdout and stderr; borrowed
  int output = -1;                 // stdout instead, unless it is -1; borrowed
  ProcessLimits limits;
  std::string cgroup = {};  // the folder of the control group in which it starts, or empty
};

// Returns the environment of an owner's processes: who the owner is, and those variables of this
// process that name a language or a time zone, or that CUDA, NCCL and OpenMP read. Everything else,
// such as a daemon's secrets, is left out. `variables` are as in environ.
std::vector<std::string> EnvironmentOf(const Account& account, const std::string& cache_home,
                                       const char* const* variables);

// Starts a program in a session of its own, as the user, with the user's groups and limits, umask
// 077, no descriptors but 0, 1 and 2, and without the way to more rights that programs with the
// set-user-ID bit are. Returns what failed, also if the program cannot be executed by that user.
// The caller reaps the process.
absl::StatusOr<pid_t> LaunchAs(const Account& account, const LaunchOptions& options);

}  // namespace trainyard::agent
