// The one writer. A thread owns the yard; everybody else posts to it. A turn: drain what has come,
// let the yard decide, commit once, show it on the board, and only then answer.
//
// A commit that fails for lack of space is answered with that, and the yard is loaded again from
// the store, as if nothing had been asked. Any other failed commit ends the process: what is on
// disk is then unknown, and only a new start reads it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/core/yard/deadlines.h"
#include "server/core/yard/yard.h"
#include "server/runtime/board.h"
#include "server/store/store.h"

namespace trainyard::runtime {

// What a worker should have, as of a revision within its session.
struct DesiredState {
  int64_t revision = 0;
  std::vector<core::DesiredAttempt> attempts;
};

// Thread-safe. Borrows everything it is given.
class Runtime {
 public:
  struct Options {
    core::Config config;
    // Inputs that wait for their turn; past that they are refused (SERVER_BUSY).
    size_t queue_max = 10'000;
    // Inputs of one turn, so that a flood cannot delay the first of them for long.
    size_t batch_max = 1024;
    // After a commit for which there was no space, timers wait so long.
    absl::Duration retry_after_full_disk = absl::Seconds(1);
    // After each turn that changed something, once it is committed and on the board. On the writer.
    std::function<void(const core::Turn&)> on_turn = [](const core::Turn&) {};
    // The end of the process. If it returns, every later input is refused with the status.
    std::function<void(const absl::Status&)> on_fatal;
  };

  // All are called exactly once: by the writer, or in the call itself where the input is refused.
  // They are quick and never block.
  using Done = std::function<void(absl::StatusOr<core::Reply>)>;
  using SyncDone = std::function<void(absl::StatusOr<DesiredState>)>;
  using ReadDone = std::function<void(absl::StatusOr<const core::Yard*>)>;

  // Loads the store and starts the thread.
  static absl::StatusOr<std::unique_ptr<Runtime>> Start(Options options, store::Store& store,
                                                        Clock& clock, Board& board);
  ~Runtime();

  // Answered when its effect is durable, or refused.
  void Post(core::Input input, Done done);
  // A worker's report. Answered at once where the desired revision is another than the worker's, or
  // where it is 0; else when it changes, when `max_wait` is over, or when the worker calls again.
  void Sync(core::SyncReport report, absl::Duration max_wait, SyncDone done);
  // Calls with the yard, all of whose state is committed then.
  void Read(ReadDone done);

  core::Now Now() const;

  // Answers waiting workers with UNAVAILABLE, finishes what is queued, joins. Idempotent.
  void Stop();

 private:
  struct PostItem {
    core::Input input;
    Done done;
  };
  struct SyncItem {
    core::SyncReport report;
    absl::Duration max_wait;
    SyncDone done;
  };
  struct ReadItem {
    ReadDone done;
  };
  using Item = std::variant<PostItem, SyncItem, ReadItem>;
  // An input of this turn with what the yard said.
  struct Applied {
    Done done;
    absl::StatusOr<core::Reply> reply;
  };
  // A worker that waits for something to do.
  struct Waiting {
    std::string session;
    SyncDone done;
  };

  Runtime(Options options, store::Store& store, Clock& clock, Board& board, core::Yard yard);

  static void Refuse(Item item, const absl::Status& status);
  void Enqueue(Item item);

  // On the writer.
  void Loop();
  std::vector<Item> Take();
  absl::Duration WaitLimit() const;
  void RunTurn(std::vector<Item> items);
  absl::Status CommitTurn(const core::Turn& turn, core::Now now);
  void ReloadYard(core::Now now);
  void AcceptSync(SyncItem item, core::Now now);
  void AnswerWaiting(const core::Turn& turn, core::Now now);
  void AnswerWaiting(const std::string& worker);
  void AnswerSync(const std::string& worker, const std::string& session, const SyncDone& done);

  const Options options_;
  store::Store& store_;
  Clock& clock_;
  Board& board_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);

  // The writer's own.
  core::Yard yard_;
  std::map<std::string, Waiting> waiting_;  // by worker
  core::Deadlines<std::string> answer_by_;  // of each of them
  int64_t settle_after_us_ = 0;             // uptime; timers rest until then
  std::thread thread_;
};

}  // namespace trainyard::runtime
