// The server's process: the yard and its disk, driven in the order of server/runtime/runtime.cc. A
// turn takes what has come, lets the yard decide, commits, and only then answers. It may die at any
// moment, also between any two of these.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "server/core/yard/yard.h"
#include "tests/sim/disk.h"
#include "tests/sim/options.h"
#include "tests/sim/transport.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

struct DesiredState {
  int64_t revision = 0;
  std::vector<core::DesiredAttempt> attempts;
  std::set<core::CheckpointRef> resumable;  // those resume points that exist
  std::map<AttemptId, std::shared_ptr<const core::Submission>> submissions;  // of what is to run
};

// Where in a turn the process dies.
enum class CrashPoint { kNone, kBeforeCommit, kInCommit, kBeforeAnswers, kAmongAnswers };

class Server {
 public:
  template <typename T>
  using Answer = Transport::Answer<T>;

  Server(World& world, const Options& options, Transport& transport, Disk& disk, HostClock clock);

  std::function<void()> on_start;  // it has read its disk

  void Start();
  // The process dies; with `power`, the host too.
  void Crash(bool power);
  // It dies there in the next turn that commits something, and is started again after `away`.
  void CrashAt(CrashPoint point, Time away);
  bool is_up() const { return yard_ != nullptr; }
  // Since when it has been able to do its work.
  Time up_since() const { return up_since_; }
  HostClock& clock() { return clock_; }
  // Of the last start; null while it is down.
  const core::Yard* yard() const { return yard_.get(); }

  // Calls, as server/rpc serves them.
  void Post(core::Input input, Answer<core::Reply> answer);
  void Sync(core::SyncReport report, Time max_wait, Answer<DesiredState> answer);
  void Register(core::RegisterWorker input, Answer<std::string> answer);
  void CommitCheckpoint(core::CommitCheckpoint input, Answer<core::Reply> answer);
  void FetchCheckpoint(core::CheckpointRef id, Answer<bool> answer);
  void EndStreams(const std::string& session, AttemptId attempt, int64_t token,
                  Answer<bool> answer);

 private:
  using Done = std::function<void(absl::StatusOr<core::Reply>)>;
  using ReadDone = std::function<void(absl::StatusOr<const core::Yard*>)>;
  struct PostItem {
    core::Input input;
    Done done;
  };
  struct SyncItem {
    core::SyncReport report;
    Time max_wait = 0;
    Answer<DesiredState> done;
  };
  struct ReadItem {
    ReadDone done;
  };
  using Item = std::variant<PostItem, SyncItem, ReadItem>;
  struct Waiting {
    std::string session;
    int64_t revision = 0;
    int64_t deadline_us = 0;  // uptime
    Answer<DesiredState> done;
  };
  // A turn between its decisions and its answers.
  struct OpenTurn {
    core::Now now;
    core::Turn turn;
    std::vector<std::pair<Done, absl::StatusOr<core::Reply>>> applied;
    std::vector<std::pair<SyncItem, absl::Status>> syncs;
    std::vector<ReadDone> reads;
  };

  core::Now Now() const;
  void Read(ReadDone done);
  void Enqueue(Item item);
  void WakeAt(Time when);
  void SetTimer();
  void BeginTurn();
  void EndTurn();
  absl::Status Commit(const core::Turn& turn, core::Now now);
  bool DiesAt(CrashPoint point);
  void AnswerAll(OpenTurn turn, const absl::Status& committed);
  void AcceptSync(SyncItem item, core::Now now);
  void AnswerWaiting(const core::Turn& turn, core::Now now);
  void AnswerWaiting(const std::string& worker);
  void AnswerSync(const std::string& worker, const std::string& session,
                  const Answer<DesiredState>& done);

  World& world_;
  const Options& options_;
  Transport& transport_;
  Disk& disk_;
  HostClock clock_;

  // Of the process.
  int64_t life_ = 0;
  Time up_since_ = 0;
  int sessions_ = 0;
  std::unique_ptr<core::Yard> yard_;
  std::vector<Item> queue_;
  std::map<std::string, Waiting> waiting_;  // by worker
  std::optional<OpenTurn> open_;
  int64_t settle_after_us_ = 0;
  Time wake_at_ = 0;  // the earliest that is set; 0: none
  CrashPoint crash_point_ = CrashPoint::kNone;
  Time crash_away_ = 0;
};

}  // namespace trainyard::sim
