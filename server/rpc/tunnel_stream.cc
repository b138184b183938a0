// Copies frames. No lock is held while another end is called.
#include "server/rpc/tunnel_stream.h"

#include <utility>

#include "common/rpc/status.h"

namespace trainyard::rpc {

void TunnelStream::Join(const std::shared_ptr<TunnelStream>& user,
                        const std::shared_ptr<TunnelStream>& worker) {
  {
    const absl::MutexLock lock(&user->mutex_);
    user->other_ = worker;
  }
  {
    const absl::MutexLock lock(&worker->mutex_);
    worker->other_ = user;
  }
  // An end that was over before it knew the other one did not end that.
  if (user->has_ended()) {
    worker->End(absl::CancelledError("the user has gone"));
  } else if (worker->has_ended()) {
    user->End(worker->EndOfOther(absl::CancelledError("the worker has gone")));
  }
  user->ReadOn();
  worker->ReadOn();
}

bool TunnelStream::has_ended() const {
  const absl::MutexLock lock(&mutex_);
  return end_.has_value();
}

void TunnelStream::ReadOn() {
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    is_starting_read_ = true;
  }
  StartRead(&incoming_);
  {
    const absl::MutexLock lock(&mutex_);
    is_starting_read_ = false;
  }
  Advance();
}

void TunnelStream::Send(v1::TunnelFrame frame, std::function<void()> then) {
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    outgoing_.push_back({std::move(frame), std::move(then)});
  }
  Advance();
}

void TunnelStream::End(const absl::Status& status) {
  std::shared_ptr<TunnelStream> other;
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    end_ = status;
    other = std::move(other_);
  }
  OnEnd();
  Advance();
  if (other != nullptr) other->End(EndOfOther(status));
}

void TunnelStream::PassOn(v1::TunnelFrame frame, TunnelStream& other) {
  other.Send(std::move(frame), [self = shared_from_this()] { self->ReadOn(); });
}

void TunnelStream::OnReadDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the other end has gone"));
  std::shared_ptr<TunnelStream> other;
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    other = other_;
  }
  if (!std::exchange(has_first_, true)) return TakeFirst(std::move(incoming_));
  const absl::Status may = Check(incoming_);
  if (!may.ok()) return End(may);
  if (incoming_.has_ping() || other == nullptr) return ReadOn();
  PassOn(std::move(incoming_), *other);
}

void TunnelStream::OnWriteDone(bool ok) {
  std::function<void()> then;
  {
    const absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    then = std::move(outgoing_.front().then);
    outgoing_.pop_front();
  }
  if (!ok) {
    End(absl::CancelledError("the other end has gone"));
  } else {
    then();
  }
  Advance();
}

void TunnelStream::Advance() {
  const v1::TunnelFrame* next = nullptr;
  absl::Status end;
  {
    const absl::MutexLock lock(&mutex_);
    if (is_writing_ || is_starting_read_ || is_finished_) return;
    if (!outgoing_.empty()) {
      is_writing_ = true;
      next = &outgoing_.front().frame;
    } else if (end_.has_value()) {
      is_finished_ = true;
      end = *end_;
    } else {
      return;
    }
  }
  if (next != nullptr) {
    StartWrite(next);
  } else {
    Finish(ToGrpcStatus(end));
  }
}

TunnelReactor* FailedTunnel(const absl::Status& status) {
  class Failed : public TunnelReactor {
   public:
    explicit Failed(const absl::Status& failure) { Finish(ToGrpcStatus(failure)); }
    void OnDone() override { delete this; }
  };
  return new Failed(status);
}

}  // namespace trainyard::rpc
