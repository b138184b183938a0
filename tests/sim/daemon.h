// The worker daemon: the pure core of worker/agent, driven in the order of agent.cc. It looks at
// the run directories, decides by Reconcile, acts, and reports; link, fetcher and uploader are
// calls under way. It dies, hangs and starts again; what it knew besides the disk is then gone.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/options.h"
#include "tests/sim/server.h"
#include "tests/sim/transport.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/report.h"

namespace trainyard::sim {

class Daemon {
 public:
  Daemon(World& world, const Options& options, Transport& transport, Server& server, Host& host,
         Trainers& trainers);

  void Start();  // fine where it runs
  void Kill();
  // SIGSTOP; SIGCONT comes after `how_long`. With `in_turn`: between two steps of its next turn.
  void Stop(Time how_long, bool in_turn);
  // It dies between two steps of its next turn.
  void KillInTurn() { dies_in_turn_ = true; }
  bool is_running() const { return is_running_; }

  // A file has changed, or a call has come back.
  void Wake();

 private:
  // agent::Attempt, as far as the simulated disk has it.
  struct Attempt {
    agent::LocalAttempt local;
    bool has_directory = true;
    std::optional<run_dir::AttemptExit> exit;
    std::map<int, run_dir::Progress> progress;
    int launches = 0;
    absl::Duration launched_uptime;
    std::optional<absl::Status> fetched;
    // Of the uploaders.
    std::set<int64_t> committed;
    std::set<int64_t> given_up;
    bool checkpoints_done = false;
    bool streams_done = false;
  };

  // Calls `step` unless the daemon has died since; later, while it is stopped.
  std::function<void()> Guard(std::function<void()> step);
  template <typename T>
  std::function<void(absl::StatusOr<T>)> GuardAnswer(std::function<void(absl::StatusOr<T>)> step) {
    return [this, life = life_, step = std::move(step)](absl::StatusOr<T> answer) {
      if (life != life_) return;
      Guard([step, answer = std::move(answer)] { step(answer); })();
    };
  }
  void After(Time delay, std::function<void()> step);
  bool Breaks();

  // daemon.cc: a turn.
  void Turn();
  void FinishTurn();
  void ActOn(std::deque<agent::Action> actions);
  void TakeFetched();
  void TakeUploads();
  void Act(const agent::Action& action);
  void Begin(AttemptId id, const agent::DesiredAttempt& wanted);
  void Assign(AttemptId id, const agent::DesiredAttempt& wanted);
  void BeginFailed(AttemptId id, const agent::DesiredAttempt& wanted, const absl::Status& status);
  void SendReport();
  const agent::DesiredAttempt* Wanted(AttemptId id) const;

  // daemon_attempts.cc: what is on the disk.
  void Adopt();
  void Observe();
  void ObserveOne(AttemptId id, Attempt& attempt);
  agent::Phase PhaseOf(AttemptId id, const Attempt& attempt) const;
  void Launch(AttemptId id, Attempt& attempt);
  void Fail(AttemptId id, int64_t token, run_dir::AttemptExit exit);
  void Apply(const agent::Action& action, const agent::DesiredAttempt* wanted);
  void RecordDeath(AttemptId id);
  agent::ReportedAttempt Describe(AttemptId id, const Attempt& attempt) const;

  // daemon_link.cc: calls.
  void Pump();
  void Register();
  void Sync();
  void Failed(const absl::Status& status, const std::string& session);
  core::SyncReport MakeReport() const;
  void TakeAnswer(const DesiredState& state, absl::Duration sent_at);
  void SetReport(agent::Report report, bool urgent);
  void Fetch(AttemptId id, core::CheckpointRef ref);
  void Upload();
  void UploadFailed(const absl::Status& status, const std::string& session);
  std::vector<core::DeviceRecord> Devices() const;

  World& world_;
  const Options& options_;
  Transport& transport_;
  Server& server_;
  Host& host_;
  Trainers& trainers_;

  bool is_running_ = false;
  bool is_stopped_ = false;
  bool stops_in_turn_ = false;
  Time stop_length_ = 0;
  bool dies_in_turn_ = false;
  int64_t life_ = 0;
  std::vector<std::function<void()>> deferred_;  // until SIGCONT
  bool is_waking_ = false;
  bool is_in_turn_ = false;
  bool is_woken_again_ = false;  // in that turn
  Time look_at_ = 0;

  // Of the loop.
  std::map<AttemptId, Attempt> attempts_;
  std::optional<agent::Desired> desired_;
  std::optional<agent::Desired> inbox_;
  std::map<AttemptId, std::shared_ptr<const core::Submission>> submissions_;
  std::optional<agent::Report> reported_;
  std::map<AttemptId, int> begin_tries_;
  std::map<AttemptId, absl::Duration> begin_next_;

  // Of the link.
  std::string session_;
  std::shared_ptr<PendingCall> call_;  // null: none is under way
  bool is_pausing_ = false;
  Time backoff_ = 0;
  bool heard_ = false;
  int64_t sequence_ = 0;
  int64_t serial_ = 0;
  int64_t answered_serial_ = 0;  // the next sync waits for a report that has acted upon it
  std::optional<agent::Report> report_;
  std::optional<agent::Report> sent_;
  // Of the uploaders.
  bool is_uploading_ = false;
  Time upload_backoff_ = 0;
};

}  // namespace trainyard::sim
