// Implements the client's end of a tunnel to a running rank (trainyard/v1/tunnel.proto).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/link/server_link.h"
#include "common/base/files.h"
#include "grpcpp/client_context.h"
#include "trainyard/v1/tunnel.grpc.pb.h"

namespace trainyard::link {

// The stream. One thread reads and ends it; all others may write.
class Tunnel {
 public:
  // Borrows `link`.
  Tunnel(ServerLink& link, const v1::TunnelOpen& open);
  ~Tunnel();

  // Reads the next frame of the worker. Grants are taken note of here. Returns false at the end.
  bool Read(v1::TunnelFrame& frame);
  // Returns false if the stream is over.
  bool Write(const v1::TunnelFrame& frame);
  // Returns how much input may be sent now, and takes it off once it was.
  int64_t credit() const;
  void Spend(int64_t bytes);
  void Cancel() { context_.TryCancel(); }
  // Returns how the stream has ended, after Read has returned false.
  absl::Status Finish();
  // An eventfd, which is written when there is credit.
  int wake_fd() const { return wake_.get(); }
  void Wake();

 private:
  ServerLink& link_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TunnelFrame, v1::TunnelFrame>> stream_;
  UniqueFd wake_;
  bool is_finished_ = false;
  absl::Mutex write_mutex_;
  mutable absl::Mutex mutex_;
  int64_t credit_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Sends what can be read from a descriptor, as the worker grants it, on a thread of its own, until
// its end or until it is destroyed. It borrows all that it is given.
class InputPump {
 public:
  // `on_tick` is called several times a second, on the thread.
  InputPump(Tunnel& tunnel, int descriptor, std::function<void()> on_tick = {});
  ~InputPump();

 private:
  void Run();
  // Sends one piece. Returns false at the end.
  bool Pass();

  Tunnel& tunnel_;
  const int descriptor_;
  const std::function<void()> on_tick_;
  absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Writes everything, and waits for a descriptor that does not block. Returns false if nobody reads
// it.
bool WriteAll(int descriptor, const std::string& bytes);

}  // namespace trainyard::link
