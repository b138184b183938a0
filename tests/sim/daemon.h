// Simulates the worker daemon's process: the cores of worker/agent run on a simulated network and
// disk. The daemon dies, hangs and starts again, also between any two steps of a turn; what it knew
// besides the disk is then gone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/machine.h"
#include "tests/sim/options.h"
#include "tests/sim/ports.h"
#include "tests/sim/server.h"
#include "tests/sim/sim_run_dirs.h"
#include "tests/sim/transport.h"
#include "worker/agent/checkpoint_queue.h"
#include "worker/agent/daemon_core.h"
#include "worker/agent/link_core.h"
#include "worker/agent/session.h"
#include "worker/agent/stream_cursor.h"

namespace trainyard::sim {

class Daemon {
 public:
  Daemon(World& world, const Options& options, Transport& transport, Server& server,
         Machine& machine, Trainers& trainers);

  void Start();  // does nothing if it runs
  void Kill();
  // Tells it to end: its jobs get so much time for a checkpoint, and go on elsewhere. It dies when
  // none is left, or after `patience`, and starts again after `away`.
  void Leave(Time within, Time patience, Time away);
  // Returns true if the server is known to have heard that it is to end.
  bool is_known_to_leave() const { return is_running() && process_->server_knows; }
  // Sends SIGSTOP, and SIGCONT after `how_long`. With `in_turn`, it does so between two steps of
  // the next turn.
  void Stop(Time how_long, bool in_turn);
  // Makes it die between two steps of its next turn.
  void KillInTurn() { dies_in_turn_ = true; }
  bool is_running() const { return process_ != nullptr; }
  // Returns when it last took an answer of the server, or continued after a stop, during which an
  // answer may have arrived. Right after that it tells the server that it has heard.
  Time last_heard() const { return last_heard_; }

  // Notes that a file has changed, or that a call has come back.
  void Wake();

 private:
  // The memory of one run of the daemon.
  struct Process {
    Process(SimRunDirs& dirs, std::vector<agent::Device> devices, Clock& clock, Rng& rng,
            absl::Duration report_interval)
        : core(dirs, devices, clock),
          link(devices, session, rng, report_interval),
          checkpoints(rng) {}

    agent::Session session;
    agent::DaemonCore core;
    std::optional<agent::Report> reported;
    absl::Duration leave_within;  // 0 if it is not to end
    bool server_knows = false;    // that it is to end, as the last answer says
    bool gets_nothing_more = false;
    Time away = 0;  // after its end
    // These belong to the link.
    agent::LinkCore link;
    std::shared_ptr<PendingCall> call;  // null if none is under way
    bool is_sync = false;               // true if that call is a sync
    bool is_pausing = false;
    std::map<AttemptId, agent::ResumeSource> fetches;
    // These belong to the uploaders.
    std::vector<agent::UploadTarget> targets;
    agent::CheckpointQueue checkpoints;
    bool is_sending_checkpoint = false;
    std::map<AttemptId, agent::StreamCursor> logs;
    std::set<AttemptId> logs_done;
    bool is_sending_log = false;
  };

  // Returns a function that calls `step`, but not if the daemon has died since then, and only after
  // SIGCONT if it is stopped.
  std::function<void()> Guard(std::function<void()> step);
  template <typename T>
  std::function<void(absl::StatusOr<T>)> GuardAnswer(std::function<void(absl::StatusOr<T>)> step) {
    return [this, life = life_, step = std::move(step)](absl::StatusOr<T> answer) {
      if (life != life_) return;
      if (is_stopped_) {
        deferred_.push_back([step, answer = std::move(answer)] { step(answer); });
      } else {
        step(std::move(answer));
      }
    };
  }
  void After(Time delay, std::function<void()> step);
  bool Breaks();
  void EndIfEmpty();

  void Turn();
  void DoSteps();
  void FinishTurn();
  void SetTargets();
  void SendReport(agent::Report report);
  std::vector<agent::Device> Devices() const;

  // These stand in for the threads around the cores. They are implemented in daemon_calls.cc.
  void Pump();
  void Do(const agent::LinkCore::AwaitReport&) {}
  void Do(const agent::LinkCore::Pause& pause);
  void Do(const agent::LinkCore::Register& due);
  void Do(const agent::LinkCore::Sync& due);
  void Fetch(AttemptId id);
  void EndFetch(AttemptId id, const absl::Status& status);
  // Asks the server to look at its own copy, as CheckpointFetcher does.
  void AskAboutDamage(AttemptId id, const absl::Status& seen);
  void PumpCheckpoints();
  void SendCheckpoint(const agent::CheckpointQueue::Upload& upload);
  void PumpLogs();
  // Returns true if there was something to send.
  bool SendLog(const agent::UploadTarget& target);
  void LogAnswered(AttemptId id, const std::string& session, const absl::StatusOr<int64_t>& next);
  void Removed(const RunDirectory& dir);

  World& world_;
  const Options& options_;
  Transport& transport_;
  Server& server_;
  Machine& machine_;
  Trainers& trainers_;
  SimClock clock_;
  SimRng rng_;
  SimRunDirs dirs_;

  std::unique_ptr<Process> process_;  // null while it does not run
  bool is_stopped_ = false;
  bool stops_in_turn_ = false;
  Time stop_length_ = 0;
  bool dies_in_turn_ = false;
  int64_t life_ = 0;
  Time last_heard_ = 0;
  std::vector<std::function<void()>> deferred_;  // until SIGCONT
  bool is_waking_ = false;
  bool is_in_turn_ = false;
  bool is_woken_again_ = false;  // in that turn
  Time look_at_ = 0;
};

}  // namespace trainyard::sim
