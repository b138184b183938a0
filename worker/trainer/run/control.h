// Reads requests to a running rank, which come as signals and as files in control/.
#pragma once

#include <atomic>
#include <cstdint>

#include "worker/run_dir/paths.h"

namespace trainyard::trainer {

// The thread that takes the signals sets these, and the loop reads them.
struct Signals {
  std::atomic<bool> stop = false;                // by SIGTERM
  std::atomic<int64_t> checkpoint_requests = 0;  // by SIGUSR1, counted
};

// Looks at both sources between two steps and remembers what has been answered. Borrows the
// signals.
class ControlReader {
 public:
  ControlReader(run_dir::RunDir dir, const Signals& signals)
      : dir_(std::move(dir)), signals_(signals) {}

  bool stop_requested() const { return signals_.stop.load(std::memory_order_relaxed); }
  // Returns true if there is a request that no checkpoint has answered, and remembers the newest.
  bool CheckpointRequested();
  // Notes that a checkpoint answers all requests that the last CheckpointRequested has seen.
  // Returns the number of the newest request in control/checkpoint among them, or 0 if there is
  // none.
  int64_t AnswerCheckpoint();

 private:
  const run_dir::RunDir dir_;
  const Signals& signals_;
  int64_t seen_file_ = 0;
  int64_t seen_signals_ = 0;
  int64_t answered_file_ = 0;
  int64_t answered_signals_ = 0;
};

}  // namespace trainyard::trainer
