// Implements one end of a tunnel: the stream of a user, or of a worker. Two ends that were joined
// copy frames to each other. Each reads its next frame only when the other has written the last
// one, so a tunnel holds one frame of each direction, and an end that does not read stops the other
// by the flow control of HTTP/2.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/streams.h"
#include "trainyard/v1/tunnel.pb.h"

namespace trainyard::rpc {

using TunnelReactor = grpc::ServerBidiReactor<v1::TunnelFrame, v1::TunnelFrame>;

// An end. It is thread-safe. A shared pointer must keep it until OnDone.
class TunnelStream : public TunnelReactor,
                     public StreamBase,
                     public std::enable_shared_from_this<TunnelStream> {
 public:
  // Reads the first frame.
  void Begin() { ReadOn(); }
  // Connects two ends, and copies from now on. The frames that each was sent before come first. If
  // one of them has ended, so does the other.
  static void Join(const std::shared_ptr<TunnelStream>& user,
                   const std::shared_ptr<TunnelStream>& worker);
  // Queues a frame. `then` is called once it is written, but not if the stream ends before.
  void Send(
      v1::TunnelFrame frame, std::function<void()> then = [] {});
  // Ends this end once what was sent is written, and then the other one.
  void End(const absl::Status& status) override;
  bool has_ended() const;

 protected:
  // Takes the first frame.
  virtual void TakeFirst(v1::TunnelFrame frame) = 0;
  // Returns OK if the frame may be passed on.
  virtual absl::Status Check(const v1::TunnelFrame& frame) const = 0;
  // Says what the other end ends with when this one has ended.
  virtual absl::Status EndOfOther(const absl::Status& own) const = 0;
  // Passes on a frame that was checked.
  virtual void PassOn(v1::TunnelFrame frame, TunnelStream& other);
  // This end is over. It is called once, before the other is ended.
  virtual void OnEnd() {}
  // Nothing calls this object any more.
  virtual void OnGone() = 0;

  // Reads the next frame, unless this end is over.
  void ReadOn();

 private:
  struct Outgoing {
    v1::TunnelFrame frame;
    std::function<void()> then;
  };

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final { End(absl::CancelledError("the other end has gone")); }
  void OnDone() final { OnGone(); }
  // Writes the next frame or finishes, if it is time for that.
  void Advance();

  v1::TunnelFrame incoming_;  // is being read
  mutable absl::Mutex mutex_;
  bool has_first_ = false;  // only the reading thread uses it
  std::deque<Outgoing> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  // The stream is not finished while a read begins, since gRPC may destroy it after that.
  bool is_starting_read_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<TunnelStream> other_ ABSL_GUARDED_BY(mutex_);
};

// Returns a stream that ends at once with an error.
TunnelReactor* FailedTunnel(const absl::Status& status);

}  // namespace trainyard::rpc
