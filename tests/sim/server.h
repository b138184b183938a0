// The server's process: its turn loop (server/runtime/turn_loop.h) around a disk that fails. It may
// die at any moment, also between any two steps of a turn.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/runtime/turn_loop.h"
#include "tests/sim/disk.h"
#include "tests/sim/options.h"
#include "tests/sim/transport.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

// The turn loop's answer to a worker, with what server/rpc adds to it.
struct DesiredState {
  int64_t revision = 0;
  std::vector<core::DesiredAttempt> attempts;
  std::set<core::CheckpointRef> resumable;  // those resume points that exist
  std::map<AttemptId, std::shared_ptr<const core::Submission>> submissions;  // of what is to run
};

// Says where in a turn the process dies.
enum class CrashPoint { kNone, kBeforeCommit, kInCommit, kBeforeAnswers, kAmongAnswers };

class Server {
 public:
  template <typename T>
  using Answer = Transport::Answer<T>;

  Server(World& world, const Options& options, Transport& transport, Disk& disk, HostClock clock);

  std::function<void()> on_start;  // called when it has read its disk

  void Start();
  // Ends the process; with `power`, the host loses its power too.
  void Crash(bool power);
  // Makes it die there in the next turn that commits something; it is started again after `away`.
  void CrashAt(CrashPoint point, Time away);
  bool is_up() const { return loop_ != nullptr; }
  // The moment since which it has been able to do its work.
  Time up_since() const { return up_since_; }
  HostClock& clock() { return clock_; }
  // Returns the yard as of the last start, or null while the server is down.
  const core::Yard* yard() const { return loop_ == nullptr ? nullptr : &loop_->yard(); }

  // The calls, as server/rpc serves them.
  void Post(core::Input input, Answer<core::Reply> answer);
  void Sync(core::SyncReport report, Time max_wait, Answer<DesiredState> answer);
  void Register(core::RegisterWorker input, Answer<std::string> answer);
  void CommitCheckpoint(core::CommitCheckpoint input, Answer<core::Reply> answer);
  void FetchCheckpoint(core::CheckpointRef id, Answer<bool> answer);
  // Hashes the files of the checkpoint. Answers whether they are whole, once that is on record.
  void VerifyCheckpoint(core::CheckpointRef id, Answer<bool> answer);
  // The disk damages the files of the checkpoint. Nobody notices before they are read.
  void DamageCheckpoint(core::CheckpointRef id);
  // Lines of the log that an attempt writes on a host, by number.
  struct LogChunk {
    std::string session;
    AttemptId attempt;
    int64_t token = 0;
    int host = 0;
    int64_t offset = 0;
    int64_t lines = 0;
  };
  // Answers with the offset of the next chunk.
  void AppendLog(const LogChunk& chunk, Answer<int64_t> answer);
  // Returns the lines that it must have of that log, which are all if it has refused the log, or
  // lost a part of it in a power loss. This is for the checkers.
  int64_t LogLines(AttemptId attempt, int host) const;

 private:
  core::Now Now() const;
  void Enqueue(runtime::TurnItem item);
  void WakeAt(Time when);
  void SetTimer();
  void BeginTurn();
  void EndTurn();
  std::vector<runtime::TurnLoop::Answer> Commit();
  bool DiesAt(CrashPoint point);
  absl::StatusOr<int64_t> TakeChunk(const LogChunk& chunk);
  void LoseLogs();
  DesiredState Describe(runtime::DesiredState desired) const;

  World& world_;
  const Options& options_;
  Transport& transport_;
  Disk& disk_;
  HostClock clock_;
  struct Log {
    int64_t lines = 0;
    bool is_excused = false;  // it may lack lines
  };
  std::map<std::pair<AttemptId, int>, Log> logs_;  // by attempt and host
  std::set<core::CheckpointRef> damaged_;          // those whose files the disk has damaged

  // These belong to the process.
  int64_t life_ = 0;
  Time up_since_ = 0;
  int sessions_ = 0;
  std::unique_ptr<runtime::TurnLoop> loop_;
  std::vector<runtime::TurnItem> queue_;
  bool is_in_turn_ = false;
  const core::Turn* turn_ = nullptr;  // the one to commit; null: none
  Time wake_at_ = 0;                  // the earliest that is set; 0: none
  CrashPoint crash_point_ = CrashPoint::kNone;
  Time crash_away_ = 0;
};

}  // namespace trainyard::sim
