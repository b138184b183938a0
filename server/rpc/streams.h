// Implements server streams that pull. A source is asked for the next message on the executor, the
// message is written, and so on. If there is no message yet, the stream sleeps until it is woken.
// So each stream holds one message at a time, however slow its reader is, and no thread waits for a
// client.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/status.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/caller.h"
#include "server/runtime/executor.h"

namespace trainyard::rpc {

class StreamBase {
 public:
  virtual ~StreamBase() = default;
  // Ends the stream with `status`, once.
  virtual void End(const absl::Status& status) = 0;
};

// Says whose a stream is, and by which rights it was opened.
struct StreamOwner {
  // The user (UserActor) for whom it was opened, or Streams::kWorkers.
  std::string name;
  // The administrator (UserActor) who has opened it for that user, or empty.
  std::string opened_by = {};
  // The id of the token with which it was opened, or empty.
  std::string token = {};
  // Streams::revision() before the rights were looked up.
  uint64_t revision = 0;
};

// Returns the owner of the streams that the caller opens.
StreamOwner OwnerOf(const access::Caller& caller);

// Keeps all open streams alive. The class is thread-safe.
class Streams {
 public:
  // The owner of all streams of workers. Those of users cannot take their places, since a worker
  // that gets no checkpoint costs a job an attempt.
  static constexpr absl::string_view kWorkers = "workers";

  // Adds a stream. Returns RESOURCE_EXHAUSTED if the owner, or all users together, have too many
  // streams, and UNAVAILABLE after EndAll. It also returns UNAVAILABLE if streams of users were
  // ended since the rights of this one were looked up: it might be one of those.
  absl::Status Add(std::shared_ptr<StreamBase> stream, const StreamOwner& owner);
  void Remove(StreamBase* stream);
  // Ends the streams that a user (UserActor) has, or has opened for others; or those of all users
  // if `user` is empty. They can be opened again.
  void EndOfUsers(absl::string_view user, const absl::Status& status);
  // Ends the streams that were opened with a token.
  void EndOfToken(absl::string_view token, const absl::Status& status);
  // Returns a number that grows whenever rights are taken away. Rights are changed first, and
  // streams ended then, so whoever reads the number before the rights misses nothing.
  uint64_t revision() const;
  // Ends all streams, and every later one.
  void EndAll(const absl::Status& status);
  size_t size() const;

 private:
  struct Open {
    std::shared_ptr<StreamBase> stream;
    StreamOwner owner;
  };

  // Ends the streams of users that are meant.
  void EndIf(const std::function<bool(const StreamOwner&)>& is_meant, const absl::Status& status);

  mutable absl::Mutex mutex_;
  std::map<StreamBase*, Open> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> open_by_owner_ ABSL_GUARDED_BY(mutex_);
  uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

// A source has a message, has none yet, or will never have one again.
enum class Pulled { kMessage, kNothingYet, kEnd };

// The base of streams. A stream derives from it, implements Next, and is made with StartStream.
// Wake may be called from any thread.
template <typename Response>
class PullStream : public grpc::ServerWriteReactor<Response>,
                   public StreamBase,
                   public std::enable_shared_from_this<PullStream<Response>> {
 public:
  PullStream(Streams& streams, runtime::Executor& executor)
      : streams_(streams), executor_(executor) {}

  // Asks for the first message. StartStream calls it once.
  void Begin() {
    OnStart();
    Schedule();
  }

  // Tells the stream that there may be a message.
  void Wake() {
    {
      const absl::MutexLock lock(&mutex_);
      woken_ = true;
      if (phase_ != Phase::kIdle) return;
      phase_ = Phase::kPulling;
    }
    Schedule();
  }

  void End(const absl::Status& status) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (!end_.has_value()) end_ = status;
      if (phase_ != Phase::kIdle) return;  // Pull looks again when it is done
      phase_ = Phase::kFinished;
    }
    this->Finish(ToGrpcStatus(status));
  }

 protected:
  // Fills `response` in. It runs on the executor, never twice at a time, and may block on files.
  virtual absl::StatusOr<Pulled> Next(Response& response) = 0;
  // Subscribes. It is called after the stream has been made, before the first Next.
  virtual void OnStart() {}

 private:
  enum class Phase { kIdle, kPulling, kWriting, kFinished };

  void Schedule() {
    executor_.Post([self = this->shared_from_this()] { self->Pull(); });
  }

  void Pull() {
    {
      const absl::MutexLock lock(&mutex_);
      woken_ = false;
    }
    response_.Clear();
    const absl::StatusOr<Pulled> pulled = Next(response_);
    bool is_over = false;
    absl::Status status;
    {
      const absl::MutexLock lock(&mutex_);
      if (end_.has_value()) {
        is_over = true;
        status = *end_;
      } else if (!pulled.ok() || *pulled == Pulled::kEnd) {
        is_over = true;
        status = pulled.status();
      } else if (*pulled == Pulled::kMessage) {
        phase_ = Phase::kWriting;
      } else if (!woken_) {
        phase_ = Phase::kIdle;
        return;
      }
      if (is_over) phase_ = Phase::kFinished;
    }
    if (is_over) {
      this->Finish(ToGrpcStatus(status));
    } else if (*pulled == Pulled::kMessage) {
      this->StartWrite(&response_);
    } else {
      Schedule();
    }
  }

  void OnWriteDone(bool ok) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (!ok && !end_.has_value()) end_ = absl::CancelledError("the client has gone");
      phase_ = Phase::kPulling;
    }
    Schedule();
  }
  void OnCancel() override { End(absl::CancelledError("the client has gone")); }
  void OnDone() override { streams_.Remove(this); }

  Streams& streams_;
  runtime::Executor& executor_;
  Response response_;  // is being filled in, or being written
  absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kPulling;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// A stream that ends at once with an error.
template <typename Response>
grpc::ServerWriteReactor<Response>* FailedStream(const absl::Status& status) {
  class Failed : public grpc::ServerWriteReactor<Response> {
   public:
    explicit Failed(const absl::Status& failure) { this->Finish(ToGrpcStatus(failure)); }
    void OnDone() override { delete this; }
  };
  return new Failed(status);
}

// Registers the stream and asks for its first message.
template <typename Response, typename S>
grpc::ServerWriteReactor<Response>* StartStream(Streams& streams, const StreamOwner& owner,
                                                std::shared_ptr<S> stream) {
  const absl::Status added = streams.Add(stream, owner);
  if (!added.ok()) return FailedStream<Response>(added);
  stream->Begin();
  return stream.get();
}

}  // namespace trainyard::rpc
