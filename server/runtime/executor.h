// A few threads for work that may block on files, so that neither gRPC's threads nor the writer do.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace trainyard::runtime {

// Thread-safe. Tasks start in order of posting; those of different threads run side by side.
class Executor {
 public:
  // Enough to keep a disk busy while one of them hashes a large file.
  static constexpr int kThreads = 4;
  static constexpr size_t kQueueMax = 4096;

  explicit Executor(int threads = kThreads, size_t queue_max = kQueueMax);
  // Runs what is queued, then joins.
  ~Executor();

  // RESOURCE_EXHAUSTED (SERVER_BUSY, with a delay) where the queue is full.
  absl::Status TryPost(std::function<void()> task);
  // For tasks whose number is bounded by other means: one a stream.
  void Post(std::function<void()> task);

 private:
  void Loop();

  const size_t queue_max_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// The answer of a full queue: try again after a second.
absl::Status ServerBusy(absl::string_view what);

}  // namespace trainyard::runtime
