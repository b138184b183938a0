// Removes folders in the background, after a delay.
#pragma once

#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/env.h"

namespace trainyard::agent {

// Moves folders away at once and removes them `delay` later, in a thread of its own. Checkpoints
// take long to remove, and a file system like ext4 creates files slowly beside ones that have just
// been removed, which would slow a burst of small jobs. What an earlier run left is removed first.
// The class is thread-safe.
class Sweeper {
 public:
  // `bin` is a folder on the same file system, for this purpose only. It is made when it is first
  // used.
  Sweeper(std::string bin, absl::Duration delay, Clock& clock);
  ~Sweeper();

  // Removes a folder. Once it returns OK, nothing is at `path`. `name` must be unique among the
  // folders of this daemon.
  absl::Status Remove(const std::string& path, const std::string& name);
  // Does the same without a delay, but leaves what cannot be moved where it is, so that the caller
  // never waits.
  absl::Status MoveAway(const std::string& path, const std::string& name) {
    return Move(path, name, absl::ZeroDuration());
  }

 private:
  struct Item {
    std::string path;
    absl::Duration due;  // by Clock::Uptime
  };

  absl::Status Move(const std::string& path, const std::string& name, absl::Duration delay);
  void Run();

  const std::string bin_;
  const absl::Duration delay_;
  Clock& clock_;
  absl::Mutex mutex_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);  // in the order in which they are due
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::agent
