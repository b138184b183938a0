// Starts supervisors so that they outlive this daemon, and cleans up after those that died before
// their work was done.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

struct Programs {
  std::string supervisor;
  // The trainer of the `cpu` backend. The trainer of another backend has "-<backend>" after its
  // name.
  std::string trainer;
};

// Starts a program in a session of its own, with nothing of ours but the environment. What it
// prints is appended to these files, which may be the same one. The caller reaps it.
absl::StatusOr<pid_t> StartProgram(std::vector<std::string> words, const std::string& out,
                                   const std::string& err);

// Starts a supervisor in a session of its own, so that it outlives this daemon. The run directory
// shows whether it has succeeded. The caller reaps it; its exit code is not 0 if it ran nothing.
absl::StatusOr<pid_t> LaunchSupervisor(const Programs& programs, const run_dir::RunDir& dir,
                                       const std::string& backend);

// Cleans up a run directory whose supervisor died without an exit record: kills what is left of the
// attempt and, once nothing is left, writes exit.json: `transient` (SUPERVISOR_DIED), or `stopped`
// if a stop had been requested. Returns UNAVAILABLE while processes are still there, and the caller
// must call it again. Returns FAILED_PRECONDITION (ALREADY_SUPERVISED) if a supervisor lives after
// all.
absl::Status RecordDeath(const run_dir::RunDir& dir, const run_dir::Assignment& assignment,
                         Clock& clock);

// Writes exit.json for an attempt that never had a supervisor.
absl::Status RecordUnstarted(const run_dir::RunDir& dir, const absl::Status& cause, Clock& clock);

}  // namespace trainyard::agent
