// The attempts of this host: their run directories as they stand, and the steps that change them.
// What is on disk is the truth; this holds a copy of it, renewed by Observe.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/file_watch.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/launch.h"
#include "worker/agent/report.h"
#include "worker/agent/sweeper.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/records.h"

namespace trainyard::agent {

// What every assignment of this host has in common.
struct HostSettings {
  std::string state_dir;  // absolute
  std::string dataset_dir;
  // Interfaces, addresses or networks, as FindInterface takes them.
  std::string interface;  // of gangs of this host alone
  std::string address;    // of gangs over several hosts
  std::string worker;     // our name in the pool
  Programs programs;
};

// One attempt. Members are public: this is data, and Attempts keeps it true.
struct Attempt {
  AttemptId id;
  run_dir::RunDir dir{""};
  LocalAttempt local;
  bool has_directory = true;  // false: it failed before it had one
  std::optional<run_dir::Assignment> assignment;
  std::map<int, run_dir::Progress> progress;  // by rank
  std::optional<run_dir::AttemptExit> exit;
  std::map<std::string, double> final_metrics;  // of the lowest rank's result
  int launches = 0;
  absl::Duration launched_uptime;
  bool spans_workers = false;
  int64_t global_batch = 0;  // samples a step; 0 while unknown
  bool is_watched = false;   // a change of its files is told; else they are polled
  absl::Duration look_due;   // when Observe reads its files though nobody told of a change
};

// Not thread-safe. Borrows its arguments.
class Attempts {
 public:
  Attempts(HostSettings settings, std::vector<Device> devices, Clock& clock, FileWatch* watch);

  // Reads what an earlier life of the daemon left.
  void Adopt();
  // Renews the copy of what is on disk, of attempts whose files have changed and of those that are
  // due: a lost event costs no more than a delay.
  void Observe();
  // By when Observe is to be called though nothing has changed; Clock::Uptime.
  absl::Duration NextLook() const;

  const std::map<AttemptId, Attempt>& all() const { return attempts_; }
  Attempt* Find(AttemptId id);
  // As Reconcile wants it.
  std::map<AttemptId, LocalAttempt> Locals() const;

  // kBegin up to the fetch: makes the run directory. True where the attempt is to be assigned at
  // once, false where it waits for `resume_from`.
  absl::StatusOr<bool> Prepare(AttemptId id, const DesiredAttempt& desired);
  // The rest of it: writes lease and assignment, and launches.
  absl::Status Assign(AttemptId id, const DesiredAttempt& desired, absl::Duration lease_expire);
  absl::Status Launch(Attempt& attempt);
  // Forgets an attempt that could not be begun, with its folder.
  void Discard(AttemptId id);
  // The attempt counts as exited, for a reason of this host; its folder goes.
  void Fail(AttemptId id, int64_t fencing_token, run_dir::AttemptExit exit);
  // Any other action.
  absl::Status Apply(const Action& action, const DesiredAttempt* desired);

  // Where a fetched checkpoint goes.
  static std::string ResumeFolder(const Attempt& attempt, const ResumeSource& source);

 private:
  void ReapSupervisors();
  void TakeChanges();
  absl::Duration LookInterval(const Attempt& attempt) const;
  void ObserveOne(Attempt& attempt);
  static void SetAssignment(Attempt& attempt, run_dir::Assignment assignment);
  Phase PhaseOf(Attempt& attempt);
  void ReadRecords(Attempt& attempt);
  absl::StatusOr<run_dir::Assignment> MakeAssignment(AttemptId id, const DesiredAttempt& desired,
                                                     const Attempt& attempt) const;
  void Watch(Attempt& attempt);

  const HostSettings settings_;
  const std::vector<Device> devices_;
  Clock& clock_;
  FileWatch* const watch_;  // null: files are polled
  Sweeper sweeper_;
  std::map<AttemptId, Attempt> attempts_;
  std::map<int, AttemptId> folders_;        // by number of the watch
  std::map<pid_t, AttemptId> supervisors_;  // children of ours
};

// As the server is told of it.
ReportedAttempt Describe(const Attempt& attempt);

// The time left by the measured speed; nothing while it is unknown.
std::optional<absl::Duration> TimeLeft(const run_dir::Progress& progress, int64_t global_batch);

}  // namespace trainyard::agent
