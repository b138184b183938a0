// Defines the daemon's port to its run directories and to the supervisors that own them. The daemon
// of a host uses files and processes (file_run_dirs.h); the simulator has its own disk.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/attempt.h"

namespace trainyard::agent {

// The port. Implementations are not thread-safe.
class RunDirs {
 public:
  // The files that determine the phase of an attempt.
  struct Sight {
    bool is_supervised = false;  // a living process holds supervisor.lock
    bool has_supervisor_record = false;
    std::optional<run_dir::AttemptExit> exit;
  };
  struct Changes {
    std::vector<AttemptId> changed;
    bool any_lost = false;  // true if anything may have changed
    // Supervisors that ended without having begun, so that the daemon need not wait for them.
    std::vector<AttemptId> ended_early;
  };

  virtual ~RunDirs() = default;

  // Returns the run directories that an earlier run of the daemon left, with their assignments.
  virtual std::vector<Attempt> Adopt() = 0;
  // Returns what has changed since the last call.
  virtual Changes TakeChanges() = 0;
  virtual Sight Look(AttemptId id) = 0;
  // Renews the attempt's copy of its other files. A value that cannot be read stays as it was.
  virtual void Read(Attempt& attempt) = 0;
  virtual absl::StatusOr<std::string> RendezvousValue(AttemptId id, const std::string& key) = 0;

  // Makes the directory, without an assignment.
  virtual absl::Status Prepare(AttemptId id, const DesiredAttempt& wanted) = 0;
  // Begins to fetch what the attempt needs to start: a checkpoint, its code. DaemonCore::Fetched is
  // told of its end.
  virtual void Fetch(AttemptId id, const DesiredAttempt& wanted) = 0;
  // Begins to fetch the secrets of the attempt's program, and writes them. DaemonCore::Fetched is
  // told of its end, too.
  virtual void FetchSecrets(AttemptId id, int64_t fencing_token) = 0;
  // Cancels either of them.
  virtual void CancelFetch(AttemptId id) = 0;
  // Writes lease and assignment.json, and fills in what the attempt holds of the assignment.
  virtual absl::Status Assign(Attempt& attempt, const DesiredAttempt& wanted,
                              absl::Duration lease_expire) = 0;
  // Starts a supervisor. The run directory shows whether it has succeeded.
  virtual absl::Status Launch(const Attempt& attempt) = 0;
  // Writes the exit record of an attempt whose supervisor could not be started.
  virtual absl::Status RecordUnstarted(AttemptId id, const absl::Status& cause) = 0;
  // Cleans up after a dead supervisor, as launch.h explains.
  virtual absl::Status RecordDeath(AttemptId id) = 0;
  virtual absl::Status RequestStop(AttemptId id, const run_dir::StopRequest& stop) = 0;
  virtual absl::Status RenewLease(AttemptId id, absl::Duration expire) = 0;
  virtual absl::Status Publish(AttemptId id, const std::string& key, const std::string& value) = 0;
  virtual absl::Status AskCheckpoint(AttemptId id, int64_t number) = 0;
  virtual absl::Status PruneCheckpoint(AttemptId id, int64_t step) = 0;
  // Removes the directory of an attempt that could not be begun.
  virtual void Discard(AttemptId id) = 0;
  // Removes the directory of an attempt that has ended and is drained.
  virtual absl::Status Remove(AttemptId id) = 0;
};

}  // namespace trainyard::agent
