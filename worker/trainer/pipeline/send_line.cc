// Implements a queue and a thread that sends what is in it. After the first error it sends nothing
// more.
#include "worker/trainer/pipeline/send_line.h"

namespace trainyard::trainer {

SendLine::SendLine(parallel::Communicator& communicator, int peer)
    : communicator_(communicator), peer_(peer), thread_([this] { Run(); }) {}

SendLine::~SendLine() {
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
    waiting_.clear();
  }
  thread_.join();
}

int64_t SendLine::Send(absl::Span<const float> values) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(values);
  return ++given_;
}

absl::Status SendLine::WaitFor(int64_t number) {
  absl::MutexLock lock(&mutex_);
  const auto is_over = [this, number]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return sent_ >= number || !status_.ok();
  };
  mutex_.Await(absl::Condition(&is_over));
  return status_;
}

absl::Status SendLine::WaitForAll() {
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = given_;
  }
  return WaitFor(number);
}

void SendLine::Run() {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ends_ || (!waiting_.empty() && status_.ok());
  };
  while (true) {
    mutex_.Await(absl::Condition(&has_work));
    if (ends_) return;
    const absl::Span<const float> values = waiting_.front();
    waiting_.pop_front();
    mutex_.Unlock();
    const absl::Status status = communicator_.Send(values, peer_);
    mutex_.Lock();
    status_.Update(status);
    ++sent_;
  }
}

}  // namespace trainyard::trainer
