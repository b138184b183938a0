// Runs the ranks of one attempt on this host from start to end, and records how they ended.
// docs/run_directory.md is the contract.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/base/env.h"

namespace trainyard::supervisor {

struct SupervisorOptions {
  std::string run_dir;
  std::string trainer;  // the path of the program that is a rank
  // Path of the program that prints the stacks of a process; it need not exist.
  std::string stack_program = {};
};

// Returns when no process of the attempt is left and exit.json says how it ended, whatever the
// outcome, or at once if exit.json exists already. Returns FAILED_PRECONDITION, with nothing
// started and nothing written, if the attempt has a supervisor (ALREADY_SUPERVISED) or had one that
// died (SUPERVISOR_DIED). The process must have one thread only. Signals SIGTERM, SIGINT and SIGHUP
// stop the ranks.
absl::Status Supervise(const SupervisorOptions& options, Clock& clock);

}  // namespace trainyard::supervisor
