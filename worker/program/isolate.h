// Puts the command of a program into the sandbox or the container that its assignment asks for.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/environment.h"
#include "worker/program/program_spec.h"
#include "worker/run_dir/assignment.h"

namespace trainyard::program {

// Holds what there is to know of a rank's program when it is isolated. Borrows everything.
struct IsolationOf {
  const ProgramSpec& spec;
  const run_dir::Assignment& assignment;
  const run_dir::RankAssignment& rank;
  const Files& files;
  const Variables& variables;  // that are set for it
  std::string attempt_dir;     // the run directory
  std::string start;           // the folder in which it starts
  std::string home;            // $HOME
  std::string cache;           // $XDG_CACHE_HOME, or empty
};

// Returns the words to execute in place of `command`, which are the same where it is not isolated
// by programs of its own.
absl::StatusOr<std::vector<std::string>> IsolatedWords(const IsolationOf& of,
                                                       const std::vector<std::string>& command);

// Returns true if a program that has ended so had begun: its sandbox or its container could be
// made. `folder` is the rank's own.
bool HasBegun(const run_dir::Isolation& isolation, const std::string& folder, int exit_code);

}  // namespace trainyard::program
