// Runs work that may block on files on a few threads, so that neither gRPC's threads nor the writer
// block.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace trainyard::runtime {

// The executor. It is thread-safe. Tasks start in the order of posting, and run in parallel on
// different threads.
class Executor {
 public:
  // These are enough to keep a disk busy while one of them hashes a large file.
  static constexpr int kThreads = 4;
  static constexpr size_t kQueueMax = 4096;

  explicit Executor(int threads = kThreads, size_t queue_max = kQueueMax);
  // Runs the queued tasks, then joins the threads.
  ~Executor();

  // Returns RESOURCE_EXHAUSTED (SERVER_BUSY, with a delay) if the queue is full.
  absl::Status TryPost(std::function<void()> task);
  // Posts a task. It is for tasks whose number is limited by other means, such as one for each
  // stream.
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

// Returns the answer of a full queue, which asks the caller to try again after a second.
absl::Status ServerBusy(absl::string_view what);

}  // namespace trainyard::runtime
