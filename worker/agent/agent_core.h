// Reconcile decides what the worker daemon does next. It is one pure function of what the server
// wants, what is on this host, and the time. It is level-triggered: it looks at states and never at
// messages, so that a lost, a repeated or a late message does no harm, and a daemon that restarts
// continues where it was.
//
//              wanted:  RUN                  STOP                 REMOVE or not listed
//   nothing here        begin                -                    -
//   preparing           -                    abandon              abandon
//   incomplete (+)      begin again          abandon              abandon
//   prepared            launch               stop, launch (*)     stop, launch (*)
//   launching, alive    lease, requests      stop                 stop
//   orphaned            record the death     record the death     record the death
//   exited              -                    -                    remove once drained
//
// (*) A supervisor that another life of this daemon has launched may be on its way. A supervisor
// that finds a stop starts nothing and writes the exit record, whichever of the two comes first.
//
// (+) Nothing ran there under any token, so none is compared, and the server hears nothing of it.
//
// Before the server was heard, or while it is away, nothing is wanted: only deaths are recorded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/isolation.h"

namespace trainyard::agent {

// The grace of a stop whose reason the server did not give, because it no longer knows the attempt.
inline constexpr absl::Duration kUnlistedGrace = absl::Seconds(10);
inline constexpr char kUnlistedReason[] = "superseded";
// This many of the newest checkpoints stay in the run directory, where a restarted trainer looks
// first.
inline constexpr size_t kKeptCheckpoints = 2;

struct DesiredRank {
  int rank = 0;
  std::string device;        // empty for a rank without one
  int64_t cpus = 0;          // of the host; 0 if they are not divided
  int64_t memory_bytes = 0;  // of the host; 0 for no limit

  friend bool operator==(const DesiredRank&, const DesiredRank&) = default;
};

struct CheckpointFile {
  std::string name;
  int64_t size = 0;
  std::string hash;

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// A checkpoint on the server from which an attempt starts.
struct ResumeSource {
  std::string name;  // jobs/{job}/checkpoints/{step}
  int64_t step = 0;
  std::vector<CheckpointFile> files;

  friend bool operator==(const ResumeSource&, const ResumeSource&) = default;
};

struct DesiredAttempt {
  enum class Action { kRun, kStop, kRemove };
  int64_t fencing_token = 0;
  Action action = Action::kRemove;
  // These are for kRun.
  std::string owner;  // the user's name; empty if the server does not say
  std::string spec_json;
  bool runs_program = false;   // the spec has a program of the user's own
  std::string code_digest;     // of its code archive; empty if there is none
  bool needs_secrets = false;  // and that program names secrets
  // The least isolation that it asks for, and whether it brings the image of a container.
  run_dir::IsolationLevel isolation = run_dir::IsolationLevel::kUnknown;
  bool has_image = false;
  bool is_per_host = false;  // one process of the program stands for all ranks of a host
  absl::Duration keep;       // how long the ranks continue without news from the server
  int world_size = 0;
  std::vector<DesiredRank> ranks;
  std::optional<ResumeSource> resume_from;
  // The checkpoint whose weights it begins with, if it resumes from none.
  std::optional<ResumeSource> init_from;
  // Returns true if something must be fetched before its ranks can start.
  bool needs_fetch() const {
    return resume_from.has_value() || init_from.has_value() || !code_digest.empty();
  }
  std::map<std::string, std::string> rendezvous;  // published on other workers
  bool spans_workers = false;
  int64_t checkpoint_request = 0;  // grows with each request; 0 means none yet
  int64_t failures = 0;            // of the job's attempts before
  absl::Duration run_time;         // for which they trained
  // These are for kStop.
  run_dir::StopRequest stop;

  friend bool operator==(const DesiredAttempt&, const DesiredAttempt&) = default;
};

// The server's last answer.
// A user who waits for a connection to a rank; see v1::DesiredTunnel.
struct WantedTunnel {
  std::string id;
  AttemptId attempt;
  int64_t fencing_token = 0;
  int rank = 0;
};

struct Desired {
  // The number that the server gave its answer. It may start again with every session.
  int64_t revision = 0;
  // The number that this daemon gave it; it grows with every answer.
  int64_t serial = 0;
  // The uptime until which the worker's own lease lasts, counted from when the report was sent that
  // this answers. Nothing is begun after it.
  absl::Duration lease_expire_uptime;
  std::map<AttemptId, DesiredAttempt> attempts;
  std::vector<WantedTunnel> tunnels;
  // The server knew that this daemon is to end, and gives it nothing new.
  bool knows_leaving = false;
};

// The phase of an attempt on this host.
enum class Phase {
  kPreparing,   // this daemon fetches the checkpoint that it starts from
  kIncomplete,  // a daemon died while it prepared the attempt
  kPrepared,    // assignment.json exists, but no supervisor was seen
  kLaunching,   // a supervisor is being started
  kAlive,       // the supervisor has started its ranks
  kOrphaned,    // the supervisor died without an exit record
  kExited,      // exit.json exists, or the attempt failed before it had a supervisor
};

struct LocalAttempt {
  int64_t fencing_token = 0;
  Phase phase = Phase::kIncomplete;
  std::optional<run_dir::StopRequest> stop;  // control/stop
  absl::Duration lease_expire;               // as in the lease file; zero means none
  std::set<std::string> rendezvous;          // keys that exist
  int64_t checkpoint_request = 0;            // of control/checkpoint; 0 means none
  std::vector<int64_t> checkpoints;          // complete ones, ascending
  std::set<int64_t> committed;               // those that are committed on the server
  bool drained = false;                      // it has exited, and the server has all its streams

  friend bool operator==(const LocalAttempt&, const LocalAttempt&) = default;
};

struct Action {
  enum class Kind {
    kBegin,            // make the run directory, fetch, assign, launch
    kLaunch,           // start the supervisor of a prepared attempt
    kAbandon,          // give up an attempt without a supervisor, which then counts as exited
    kStop,             // write control/stop
    kRecordDeath,      // end what the dead supervisor left, then write exit.json
    kRenewLease,       // write lease
    kPublish,          // write rendezvous/<key>
    kAskCheckpoint,    // write control/checkpoint
    kPruneCheckpoint,  // remove checkpoints/step-<n>
    kRemove,           // remove the run directory
  };
  Kind kind = Kind::kBegin;
  AttemptId attempt;
  run_dir::StopRequest stop;    // for kStop and kAbandon
  absl::Duration lease_expire;  // for kRenewLease
  int64_t number = 0;           // for kPruneCheckpoint the step, for kAskCheckpoint the request
  std::string key;              // for kPublish

  friend bool operator==(const Action&, const Action&) = default;
};

// Returns the uptime until which the ranks of `attempt` may run without further news from the
// server: the worker's own lease, then on_disconnect.keep. The server counts the same time from
// when the report arrived, which is later.
absl::Duration LeaseOf(const Desired& desired, const DesiredAttempt& attempt);

// Returns the actions in order of attempt, and for one attempt in the order in which they must be
// done. `desired` is unset if the server was not heard since the daemon started.
std::vector<Action> Reconcile(const std::optional<Desired>& desired,
                              const std::map<AttemptId, LocalAttempt>& local, absl::Duration now);

}  // namespace trainyard::agent
