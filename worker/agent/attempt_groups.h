// Keeps a control group for each attempt of this host, below the one that was delegated to it:
//
//   <base>/daemon                          this daemon, and what else was in <base>
//   <base>/trainyard-<mark>-<job>-<attempt>/supervisor
//   <base>/trainyard-<mark>-<job>-<attempt>/rank-<r>
//
// The groups belong to this daemon, and so do their limits. The owner of an attempt may only move
// processes within the attempt's group, and kill them. Nothing here trusts what an owner has
// written: a group is found by the number of its attempt.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "worker/agent/file_owner.h"
#include "worker/cgroup/group.h"
#include "worker/cgroup/limits.h"
#include "worker/run_dir/assignment.h"

namespace trainyard::agent {

// The unit whose group holds the attempts of a worker that systemd starts (deploy/systemd). A unit
// of the worker's own would not do: systemd can start no process in a group that has groups below.
inline constexpr char kJobsUnit[] = "trainyard-jobs.service";
inline constexpr char kNoGroup[] = "none";
inline constexpr char kFindGroup[] = "auto";

// The memory that a supervisor may use beside its ranks.
inline constexpr int64_t kSupervisorBytes = int64_t{64} << 20;
// The processes and threads that it may have.
inline constexpr int64_t kSupervisorProcesses = 64;

struct AttemptGroupOptions {
  // "auto": the group of kJobsUnit beside this process's own, or else its own if it was delegated.
  // Otherwise the path of a group below the mount: "/lab/trainyard".
  std::string where = kFindGroup;
  std::string own_group;  // this process's group, "/system.slice/trainyard-worker.service"
  std::string mark;       // tells the groups of this worker from those of others
  int64_t processes = 0;  // the most that a rank may have; 0 for no limit
  std::string mount = cgroup::kMount;
};

// Returns the limits of each rank, in the order of `ranks`. If one process of the program stands
// for all ranks of this host, the first rank has what all have together, and the others need next
// to nothing.
std::vector<cgroup::Limits> RankLimits(const std::vector<run_dir::RankAssignment>& ranks,
                                       bool is_per_host, int64_t processes);

// The groups. The class is not thread-safe.
class AttemptGroups {
 public:
  // Finds the group and prepares it. Returns FAILED_PRECONDITION, with the reason for people, if no
  // group was delegated or its controllers do not bound memory and processes.
  static absl::StatusOr<AttemptGroups> Open(const AttemptGroupOptions& options,
                                            const cgroup::TreeCalls& calls = cgroup::RealCalls());

  std::string PathOf(AttemptId id) const;
  // Returns true if the group of the attempt is there: it is not after the host was restarted.
  bool Has(AttemptId id) const;

  // Makes the group of an attempt and those of its ranks, with their limits.
  absl::Status Make(AttemptId id, const std::vector<run_dir::RankAssignment>& ranks,
                    bool is_per_host, const FileOwner& owner) const;
  // Kills all processes of an attempt. Returns UNAVAILABLE while some are still ending.
  absl::Status Kill(AttemptId id) const;
  // Kills what is left and removes the group. Returns UNAVAILABLE while processes are still ending.
  // The group need not exist.
  absl::Status Remove(AttemptId id) const;
  // Removes the groups of attempts that this worker has no run directory of.
  void RemoveOthers(const std::set<AttemptId>& known) const;

 private:
  AttemptGroups(cgroup::Group base, std::string mark, int64_t processes)
      : base_(std::move(base)), mark_(std::move(mark)), processes_(processes) {}

  cgroup::Group GroupOf(AttemptId id) const;
  absl::Status GiveTo(const cgroup::Group& group, const FileOwner& owner) const;

  cgroup::Group base_;
  std::string mark_;
  int64_t processes_;
};

}  // namespace trainyard::agent
