// Runs a program of others with a limit of time, because such programs wait for ever at times.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainyard {

struct Command {
  std::vector<std::string> words;        // a program, which is looked up in PATH, and its arguments
  std::vector<std::string> environment;  // NAME=value; nothing else is inherited
  std::string input = {};                // must fit into a pipe: kInputBytesMax
  absl::Duration timeout = absl::Seconds(30);
};

inline constexpr size_t kInputBytesMax = 60'000;
// Slurm's list of a hundred thousand jobs is shorter.
inline constexpr size_t kOutputBytesMax = size_t{16} << 20;

struct CommandResult {
  int exit_code = -1;  // 128 + the signal if one ended it
  std::string out;
  std::string err;  // its first kilobytes
};

// Runs the command in a session of its own, without a shell, until its program ends. What children
// of it write later is not read. Returns DEADLINE_EXCEEDED if it took too long, CANCELLED once
// `is_stopping`, RESOURCE_EXHAUSTED if it wrote too much, and what starting it returned. In all
// these cases it and its children are killed.
absl::StatusOr<CommandResult> RunCommand(const Command& command,
                                         const std::atomic<bool>& is_stopping);

}  // namespace trainyard
