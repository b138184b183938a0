// Runs a program of a cluster with a limit of time, because such programs wait for ever at times.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::provision::slurm {

struct Command {
  std::vector<std::string> words;        // a program, which is looked up in PATH, and its arguments
  std::vector<std::string> environment;  // NAME=value; nothing else is inherited
  std::string input = {};                // must fit into a pipe: kInputBytesMax
  absl::Duration timeout = absl::Seconds(30);
};

inline constexpr size_t kInputBytesMax = 60'000;
// A list of a hundred thousand jobs is shorter.
inline constexpr size_t kOutputBytesMax = size_t{16} << 20;

struct CommandResult {
  int exit_code = -1;  // 128 + the signal if one ended it
  std::string out;
  std::string err;  // its first kilobytes
};

// Runs the command in a session of its own, without a shell. Returns DEADLINE_EXCEEDED if it took
// too long, CANCELLED once `is_stopping`, RESOURCE_EXHAUSTED if it wrote too much, and what
// starting it returned. In all these cases it and its children are killed.
absl::StatusOr<CommandResult> RunCommand(const Command& command,
                                         const std::atomic<bool>& is_stopping);

// Returns those variables of `environment` that the programs of Slurm need. Others would change
// what they print and ask for (SQUEUE_FORMAT, SLURM_CLUSTERS, SBATCH_ACCOUNT), and would be handed
// on to pilots.
std::vector<std::string> CleanEnvironment(const std::vector<std::string>& environment);

}  // namespace trainyard::provision::slurm
