// Starts the processes of the ranks together in one process group, holds them at a gate until their
// supervisor has recorded them, and binds them to the supervisor's life.
#pragma once

#include <sys/types.h>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "worker/cgroup/group.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"
#include "worker/run_dir/records.h"
#include "worker/supervisor/supervisor_core.h"

namespace trainyard::supervisor {

// The caller must have only one thread, be a child subreaper, and reap. The class is not
// thread-safe.
class RankGroup {
 public:
  // Forks one process a rank. Each is bound to its processors, writes to ranks/<r>/log, dies with
  // this process, and waits for Release before it becomes
  //   <trainer> --run_dir D --rank R
  // If `cgroup` is not empty, it is the attempt's control group, and each rank starts in the group
  // of its own below. On an error no process is left.
  static absl::StatusOr<RankGroup> Start(const run_dir::RunDir& dir, const std::string& trainer,
                                         const std::vector<run_dir::RankAssignment>& ranks,
                                         const std::string& cgroup = "");

  void Release();

  // Returns the record for supervisor.json, without the supervisor's own fields.
  run_dir::SupervisorRecord Record() const;
  // Returns the rank of a pid of ours, or -1 for adopted processes.
  int RankOf(pid_t pid) const;
  // Returns 0 for a rank that is not here.
  pid_t PidOf(int rank) const;
  // Returns OK, or why the trainer of this rank could not be executed. Call it once the rank has
  // ended.
  absl::Status StartError(int rank) const;

  // Sends a signal to the group, and to descendants that left it. SIGTERM wakes stopped processes
  // too, and SIGKILL reaches everything in the control groups of the ranks at once.
  void Signal(SignalToSend signal) const;
  // Returns what a rank had used, if the system has killed it for want of memory; empty otherwise.
  std::string OutOfMemory(int rank) const;

 private:
  struct Member {
    int rank = 0;
    pid_t pid = 0;
    UniqueFd error;  // reads the errno of a failed exec
  };

  RankGroup() = default;
  absl::Status StartRank(const run_dir::RunDir& dir, const std::string& trainer,
                         const run_dir::RankAssignment& rank, int gate);
  void KillAndReap();

  // Returns the control group of a rank. Call it only if there is one.
  cgroup::Group GroupOf(int rank) const;

  std::string trainer_;
  std::string cgroup_;
  pid_t group_ = 0;
  std::vector<Member> members_;
  UniqueFd gate_;  // closing it releases the ranks
};

}  // namespace trainyard::supervisor
