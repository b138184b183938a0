// Starts supervisors so that they outlive this daemon, and cleans up after those that died before
// their work was done.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "worker/agent/accounts.h"
#include "worker/agent/launch_as.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

struct Programs {
  std::string supervisor;
  // The trainer of the `cpu` backend. The trainer of another backend has "-<backend>" after its
  // name.
  std::string trainer;
  std::string program = {};   // what runs the users' own programs
  std::string enter = {};     // what goes to where a rank is, for tunnels
  ProcessLimits limits = {};  // of processes that run as another user
};

// Starts a program in a session of its own, with nothing of ours but the environment. What it
// prints is appended to these files, which may be the same one. The caller reaps it.
absl::StatusOr<pid_t> StartProgram(std::vector<std::string> words, const std::string& out,
                                   const std::string& err);

// Starts a supervisor in a session of its own, so that it outlives this daemon. The run directory
// shows whether it has succeeded. The caller reaps it; its exit code is not 0 if it ran nothing.
absl::StatusOr<pid_t> LaunchSupervisor(const Programs& programs, const run_dir::RunDir& dir,
                                       const std::string& backend);
// Does the same as the owner of the run directory, with `cache_home` for what its ranks keep, and
// in the control group at `cgroup`, unless that is empty.
absl::StatusOr<pid_t> LaunchSupervisorAs(const Account& account, const Programs& programs,
                                         const run_dir::RunDir& dir, const std::string& backend,
                                         const std::string& cache_home, const std::string& cgroup);

// Cleans up a run directory whose supervisor died without an exit record: kills what is left of the
// attempt and, once nothing is left, writes exit.json: `transient` (SUPERVISOR_DIED), or `stopped`
// if a stop had been requested. Returns UNAVAILABLE while processes are still there, and the caller
// must call it again. Returns FAILED_PRECONDITION (ALREADY_SUPERVISED) if a supervisor lives after
// all. Only processes of `owner`, to whom the run directory belongs, are killed, whatever its files
// say.
absl::Status RecordDeath(const run_dir::RunDir& dir, const FileOwner& owner, Clock& clock);

// Kills what can be found of an attempt that has ended. There is something only if its owner has
// written the end of it before its time.
void EndProcesses(const run_dir::RunDir& dir, const FileOwner& owner);

// Writes exit.json for an attempt that never had a supervisor.
absl::Status RecordUnstarted(const run_dir::RunDir& dir, const FileOwner& owner,
                             const absl::Status& cause, Clock& clock);

}  // namespace trainyard::agent
