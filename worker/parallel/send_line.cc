// Implements a queue and a thread that sends what is in it. After the first error it sends nothing
// more.
#include "worker/parallel/send_line.h"

#include <utility>

namespace trainyard::parallel {

SendLine::SendLine(Communicator& communicator, int peer)
    : communicator_(communicator), peer_(peer), thread_([this] { Run(); }) {}

SendLine::~SendLine() {
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
    waiting_.clear();
  }
  thread_.join();
}

int64_t SendLine::Send(absl::Span<const float> values, std::function<absl::Status()> written) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back({values, std::move(written)});
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
    const Message message = std::move(waiting_.front());
    waiting_.pop_front();
    mutex_.Unlock();
    absl::Status status = message.written ? message.written() : absl::OkStatus();
    if (status.ok()) status = communicator_.Send(message.values, peer_);
    mutex_.Lock();
    status_.Update(status);
    ++sent_;
  }
}

}  // namespace trainyard::parallel
