// Implements the worker daemon without its threads: it looks at the run directories, decides by
// Reconcile, and acts upon them, turn by turn. A turn is a sequence of steps, so that the simulator
// can kill or stop the daemon between any two of them:
//
//   core.BeginTurn();
//   while (core.Step()) {
//   }
//   report = core.EndTurn();
//
// The daemon's thread (agent.h) drives it with files, processes and a poll; the simulator with
// virtual time.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/report.h"
#include "worker/agent/run_dirs.h"

namespace trainyard::agent {

// The core. It is not thread-safe, and borrows its arguments.
class DaemonCore {
 public:
  DaemonCore(RunDirs& dirs, std::vector<Device> devices, Clock& clock);

  // Takes over what an earlier run of the daemon left.
  void Adopt();

  // These bring news, on which the next turn acts: the server's last answer, the end of a fetch,
  // and how far the uploaders are. `is_all_sent` means that the attempt has exited, and nothing of
  // it is left to send.
  void Wants(Desired desired) { inbox_ = std::move(desired); }
  void Fetched(AttemptId id, absl::Status status) { fetched_[id] = std::move(status); }
  void Uploaded(AttemptId id, std::set<int64_t> committed, bool is_all_sent);

  void BeginTurn();
  // Does the next step of the turn. Returns false if there is none.
  bool Step();
  // Looks once more, and returns the report about the attempts for the server.
  Report EndTurn();

  // Ends an attempt for a reason of this host.
  void Stop(AttemptId id, const run_dir::StopRequest& stop);

  const std::map<AttemptId, Attempt>& attempts() const { return attempts_; }
  // Returns the time after which a turn is due even if nothing has happened.
  absl::Duration NextTurn() const;
  // Returns true if an attempt waits until it can be begun again.
  bool is_retrying() const { return !begin_tries_.empty(); }

 private:
  // The steps of a turn.
  struct TakeFetched {
    AttemptId id;
    absl::Status status;
  };
  struct Decide {};
  struct Assign {
    AttemptId id;
  };
  struct Launch {
    AttemptId id;
  };
  using TurnStep = std::variant<TakeFetched, Decide, Assign, Launch, Action>;
  // Counts the failed tries to begin an attempt.
  struct BeginTries {
    int failed = 0;
    absl::Duration next;
  };

  void Do(const TakeFetched& fetched);
  void Do(const Decide&);
  void Do(const Assign& assign);
  void Do(const Launch& launch);
  void Do(const Action& action);

  Attempt* Find(AttemptId id);
  const DesiredAttempt* Wanted(AttemptId id) const;
  void Observe();
  void ObserveOne(Attempt& attempt);
  Phase PhaseOf(Attempt& attempt);
  absl::Duration LookInterval(const Attempt& attempt) const;
  void Begin(AttemptId id, const DesiredAttempt& wanted);
  bool NeedsSecrets(AttemptId id, const DesiredAttempt& wanted) const;
  void FetchSecrets(AttemptId id, const DesiredAttempt& wanted);
  absl::Status CheckDevices(const DesiredAttempt& wanted) const;
  void BeginFailed(AttemptId id, const DesiredAttempt& wanted, const absl::Status& status);
  int FirstWithoutDevice(const std::vector<DesiredRank>& ranks) const;
  absl::Status LaunchSupervisor(Attempt& attempt);
  void Fail(AttemptId id, int64_t fencing_token, run_dir::AttemptExit exit);
  void Abandon(const Attempt& attempt, const run_dir::StopRequest& stop);
  absl::Status Apply(const Action& action);
  void AddRendezvous(const Attempt& attempt, ReportedAttempt& reported) const;

  RunDirs& dirs_;
  const std::vector<Device> devices_;
  Clock& clock_;
  std::map<AttemptId, Attempt> attempts_;
  std::optional<Desired> inbox_;
  std::optional<Desired> desired_;
  std::map<AttemptId, absl::Status> fetched_;
  std::map<AttemptId, BeginTries> begin_tries_;
  std::set<AttemptId> fetches_secrets_;  // attempts whose secrets were asked for
  std::deque<TurnStep> steps_;
};

}  // namespace trainyard::agent
