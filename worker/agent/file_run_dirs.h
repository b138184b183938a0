// Implements the run directories of this host, with files and supervisor processes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/env.h"
#include "common/base/file_watch.h"
#include "worker/agent/accounts.h"
#include "worker/agent/attempt_groups.h"
#include "worker/agent/checkpoint_fetcher.h"
#include "worker/agent/host_resources.h"
#include "worker/agent/isolation.h"
#include "worker/agent/launch.h"
#include "worker/agent/run_as.h"
#include "worker/agent/run_dirs.h"
#include "worker/agent/secret_files.h"
#include "worker/agent/sweeper.h"
#include "worker/run_dir/assignment.h"

namespace trainyard::agent {

// The settings that all assignments of this host have in common.
struct HostSettings {
  std::string state_dir;  // absolute
  std::string dataset_dir;
  // These are interfaces, addresses or networks, as FindInterface takes them.
  std::string interface;  // for gangs on this host only
  std::string address;    // for gangs over several hosts
  std::string worker;     // our name in the pool
  HostResources host = {};
  Programs programs;
  RunAs run_as = RunAs::kAnyone;
  bool runs_root_jobs = false;  // for kOwner
  // These say how ranks can be kept apart here. `groups` is null if no control group was delegated.
  IsolationOffer isolation = {};
  std::shared_ptr<const AttemptGroups> groups = nullptr;
};

// The run directories. The daemon touches what is in one as its owner only (act_as.h); the folders
// that hold them are its own. The class is not thread-safe, and borrows `clock`, `fetcher` and
// `watch`.
class FileRunDirs : public RunDirs {
 public:
  // `watch` may be null; files are then polled.
  FileRunDirs(HostSettings settings, std::vector<Device> devices, CheckpointFetcher& fetcher,
              Clock& clock, FileWatch* watch);

  run_dir::RunDir DirOf(AttemptId id) const;
  FileOwner OwnerOf(AttemptId id) const;
  // Sets what asks the server for the secrets of an attempt.
  using AskSecrets = std::function<absl::StatusOr<Secrets>(AttemptId, int64_t, CancelToken&)>;
  void set_ask_secrets(AskSecrets ask) { ask_secrets_ = std::move(ask); }
  // Returns the users whose jobs could not be run as long as that is so, and why.
  const std::map<std::string, std::string>& refused_users() const { return refused_users_; }

  std::vector<Attempt> Adopt() override;
  Changes TakeChanges() override;
  Sight Look(AttemptId id) override;
  void Read(Attempt& attempt) override;
  absl::StatusOr<std::string> RendezvousValue(AttemptId id, const std::string& key) override;
  absl::Status Prepare(AttemptId id, const DesiredAttempt& wanted) override;
  void Fetch(AttemptId id, const DesiredAttempt& wanted) override;
  void FetchSecrets(AttemptId id, int64_t fencing_token) override;
  void CancelFetch(AttemptId id) override;
  absl::Status Assign(Attempt& attempt, const DesiredAttempt& wanted,
                      absl::Duration lease_expire) override;
  absl::Status Launch(const Attempt& attempt) override;
  absl::Status RecordUnstarted(AttemptId id, const absl::Status& cause) override;
  absl::Status RecordDeath(AttemptId id) override;
  absl::Status RequestStop(AttemptId id, const run_dir::StopRequest& stop) override;
  absl::Status RenewLease(AttemptId id, absl::Duration expire) override;
  absl::Status Publish(AttemptId id, const std::string& key, const std::string& value) override;
  absl::Status AskCheckpoint(AttemptId id, int64_t number) override;
  absl::Status PruneCheckpoint(AttemptId id, int64_t step) override;
  void Discard(AttemptId id) override;
  absl::Status Remove(AttemptId id) override;

 private:
  std::vector<Attempt> FindAttempts();
  Sight LookAsOwner(AttemptId id) const;
  void ReapSupervisors(Changes& changes);
  // Returns the account as which jobs of the user run here.
  absl::StatusOr<Account> AccountFor(const std::string& user) const;
  absl::StatusOr<Account> TakeAccount(const std::string& user);
  // Forgets refusals that have no reason any more, such as a missing account that was made.
  void ReviewRefusals();
  // Makes the empty run directory, which belongs to the owner, and the folders above it.
  absl::Status MakeRoot(const run_dir::RunDir& dir, const FileOwner& owner) const;
  // Returns the folder of the owner in which ranks keep what later ones can use again.
  absl::StatusOr<std::string> MakeCacheHome(const FileOwner& owner) const;
  // Fills in what the attempt holds of the assignment.
  void SetAssignment(Attempt& attempt, const run_dir::Assignment& assignment);
  // Returns the rank, bound to processors that no other rank is bound to.
  run_dir::RankAssignment MakeRank(const DesiredRank& rank, std::set<int64_t>& taken) const;
  // Returns the processors to which ranks of other attempts are bound, as far as these run.
  std::set<int64_t> TakenCpus(AttemptId id) const;
  absl::StatusOr<run_dir::Assignment> MakeAssignment(AttemptId id,
                                                     const DesiredAttempt& wanted) const;
  // Returns true while the supervisor of an attempt that has ended may still exit by itself.
  bool AwaitsSupervisor(AttemptId id);
  // Removes the run directory. What is in it may be large, or made so by its owner, so the sweeper
  // does the slow part.
  absl::Status SweepRoot(AttemptId id);
  // Returns a new name in the sweeper's bin.
  std::string BinName(AttemptId id) const;
  // Forgets what is known of an attempt that has no run directory any more.
  void Forget(AttemptId id);
  // Kills what is left in the attempt's control group and removes the group, if there is one.
  absl::Status RemoveGroup(AttemptId id) const;
  // Returns the folder for a fetched checkpoint.
  std::string ResumeFolder(AttemptId id, const ResumeSource& source) const;
  void Watch(Attempt& attempt, const run_dir::Assignment* assignment);

  const HostSettings settings_;
  const std::vector<Device> devices_;
  CheckpointFetcher& fetcher_;
  Clock& clock_;
  FileWatch* const watch_;
  Sweeper sweeper_;
  const SecretFiles secrets_;
  AskSecrets ask_secrets_;
  std::map<int, AttemptId> folders_;                // by the number of their watch
  std::map<pid_t, AttemptId> supervisors_;          // our child processes
  std::map<AttemptId, std::vector<int64_t>> cpus_;  // of the ranks of each attempt
  std::map<AttemptId, Account> accounts_;           // of the attempts that have a run directory
  std::set<AttemptId> without_secrets_;             // attempts whose secrets were removed
  // When supervisors that should exit by themselves are killed (Clock::Uptime).
  std::map<AttemptId, absl::Duration> removal_due_;
  std::map<std::string, std::string> refused_users_;
  absl::Duration review_due_;
};

}  // namespace trainyard::agent
