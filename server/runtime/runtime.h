// Runs the only writer: a thread and a queue around the turn loop (turn_loop.h). The thread owns
// the yard, and all others post to it. Each turn takes what has come, commits once, shows the
// result on the board, and only then answers.
//
// If a commit fails for lack of space, its inputs are answered with that error, and the yard is
// loaded again from the store, as if nothing had been asked. Any other failed commit ends the
// process: what is on the disk is then unknown, and only a new start reads it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/core/yard/yard.h"
#include "server/runtime/board.h"
#include "server/runtime/turn_loop.h"
#include "server/store/store.h"

namespace trainyard::runtime {

// The writer. It is thread-safe, and borrows everything that it is given.
class Runtime {
 public:
  struct Options {
    core::Config config;
    // The number of inputs that may wait for their turn. Further ones are refused (SERVER_BUSY).
    size_t queue_max = 10'000;
    // The inputs of one turn are limited so that a flood cannot delay the first of them for long.
    size_t batch_max = 1024;
    // After a commit for which there was no space, timers rest for this long.
    absl::Duration retry_after_full_disk = absl::Seconds(1);
    // Makes the policy by which the scheduler decides.
    TurnLoop::PolicyMaker make_policy = [] { return core::MakePolicy(); };
    // Start calls it with the content of the store, before anything changes it. An error ends the
    // start.
    std::function<absl::Status(const core::Snapshot&)> on_load = [](const core::Snapshot&) {
      return absl::OkStatus();
    };
    // The writer calls it after each turn that changed something, once it is committed and on the
    // board.
    std::function<void(const core::Turn&)> on_turn = [](const core::Turn&) {};
    // Ends the process. If it returns, every later input is refused with the status.
    std::function<void(const absl::Status&)> on_fatal;
  };

  // Each is called exactly once: by the writer, or during the call itself if the input is refused.
  using Done = PostDone;
  using SyncDone = runtime::SyncDone;
  using ReadDone = runtime::ReadDone;

  // Loads the store and starts the thread.
  static absl::StatusOr<std::unique_ptr<Runtime>> Start(Options options, store::Store& store,
                                                        Clock& clock, Board& board);
  ~Runtime();

  // Posts an input. It is answered when its effect is durable, or when it is refused.
  void Post(core::Input input, Done done);
  // Takes a worker's report; see SyncItem.
  void Sync(core::SyncReport report, absl::Duration max_wait, SyncDone done);
  // Calls `done` with the yard, whose state is all committed then.
  void Read(ReadDone done);

  // Lets the worker's next answer come at once; see WakeItem.
  void Wake(const std::string& worker);

  core::Now Now() const;

  // Answers waiting workers with UNAVAILABLE, finishes what is queued, and joins the thread. It may
  // be called again.
  void Stop();

 private:
  Runtime(Options options, store::Store& store, Clock& clock, Board& board, core::Snapshot stored);

  static void Refuse(TurnItem item, const absl::Status& status);
  void Enqueue(TurnItem item);

  // Runs on the writer.
  void Loop();
  std::vector<TurnItem> Take();
  absl::Duration WaitLimit() const;
  void RunTurn(std::vector<TurnItem> items);
  std::vector<TurnLoop::Answer> CommitTurn(const core::Turn& turn);
  // Returns to the state that the store holds.
  std::vector<TurnLoop::Answer> ReloadYard(const absl::Status& full);
  std::vector<TurnLoop::Answer> Break(const absl::Status& status);

  const Options options_;
  store::Store& store_;
  Clock& clock_;
  Board& board_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<TurnItem> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);

  // Only the writer uses these.
  TurnLoop loop_;
  std::thread thread_;
};

}  // namespace trainyard::runtime
