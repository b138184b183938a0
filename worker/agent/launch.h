// Supervisors: started so that they outlive this daemon, and buried when they died before their
// work was done.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

struct Programs {
  std::string supervisor;
  // The trainer of the `cpu` backend; that of another backend has "-<backend>" behind its name.
  std::string trainer;
};

// Starts a supervisor in a session of its own, so that it outlives this daemon. Whether it got on
// shows in the run directory. The caller reaps it; it ends with another code than 0 where it ran
// nothing.
absl::StatusOr<pid_t> LaunchSupervisor(const Programs& programs, const run_dir::RunDir& dir,
                                       const std::string& backend);

// For a run directory whose supervisor died without an exit record: kills what is left of the
// attempt and, once nothing is, writes exit.json in its place: `transient` (SUPERVISOR_DIED), or
// `stopped` where a stop had been asked for. UNAVAILABLE while processes are still there; call it
// again. FAILED_PRECONDITION (ALREADY_SUPERVISED) where a supervisor lives after all.
absl::Status RecordDeath(const run_dir::RunDir& dir, const run_dir::Assignment& assignment,
                         Clock& clock);

// Writes exit.json for an attempt that never had a supervisor.
absl::Status RecordUnstarted(const run_dir::RunDir& dir, const absl::Status& cause, Clock& clock);

}  // namespace trainyard::agent
