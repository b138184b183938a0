// Implements a queue with a limit, and a few threads that empty it.
#include "server/runtime/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/errors.h"

namespace trainyard::runtime {

absl::Status ServerBusy(absl::string_view what) {
  absl::Status status = MakeError(absl::StatusCode::kResourceExhausted, "SERVER_BUSY",
                                  absl::StrCat("the server is busy: ", what, "; try again"));
  SetRetryDelay(status, absl::Seconds(1));
  return status;
}

Executor::Executor(int threads, size_t queue_max) : queue_max_(queue_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

Executor::~Executor() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status Executor::TryPost(std::function<void()> task) {
  const MutexLock lock(&mutex_);
  if (tasks_.size() >= queue_max_) {
    return ServerBusy(absl::StrCat(tasks_.size(), " file operations are waiting"));
  }
  tasks_.push_back(std::move(task));
  changed_.Signal();
  return absl::OkStatus();
}

void Executor::Post(std::function<void()> task) {
  const MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  changed_.Signal();
}

void Executor::Loop() {
  while (true) {
    std::function<void()> task;
    {
      const MutexLock lock(&mutex_);
      while (!stopping_ && tasks_.empty()) changed_.Wait(&mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace trainyard::runtime
