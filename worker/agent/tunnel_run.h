// Serves one tunnel: claims it at the server, starts the helper, and copies bytes until an end is
// reached. One thread copies what comes out of the rank, and another one takes what the user sends.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "grpcpp/client_context.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/tunnel_helper.h"

namespace trainyard::agent {

// The tunnel. Cancel and is_done may be called by any thread.
class TunnelRun {
 public:
  // The bytes of input that may be on their way or wait here: enough to fill a fast network.
  static constexpr int64_t kWindowBytes = int64_t{1} << 20;
  static constexpr size_t kChunkBytes = size_t{64} << 10;

  TunnelRun(v1::AgentService::StubInterface& stub, std::string helper);
  // Waits for the threads.
  ~TunnelRun();

  void Start(const WantedTunnel& wanted, const std::string& session,
             std::optional<TunnelTarget> target);
  void Cancel() { context_.TryCancel(); }
  bool is_done() const { return is_done_; }

 private:
  using Stream = grpc::ClientReaderWriterInterface<v1::TunnelFrame, v1::TunnelFrame>;

  void Run(const v1::TunnelClaim& claim, const std::optional<TunnelTarget>& target);
  // Copies between the user and the helper. Returns the frame with which it ends.
  v1::TunnelFrame Serve(const v1::TunnelOpen& open, const std::optional<TunnelTarget>& target);
  v1::TunnelFrame Copy(TunnelHelper& helper, bool is_connection, const TunnelTarget& target);
  // Leaves a trace of the user at the rank, which counts as use of it (idle_limit).
  void NoteVisit(const TunnelTarget& target);
  // Takes what the user sends, until the stream ends. It is the other thread.
  void TakeFrames();
  void Take(v1::TunnelFrame frame);
  // Sends what can be read, and closes the descriptor at its end. Returns false if the stream is
  // over.
  bool PassOutput(UniqueFd& from, bool is_error);
  bool PassInput(UniqueFd& to, bool is_connection);
  bool Grant(int64_t bytes);
  void CloseInput(UniqueFd& to, bool is_connection);
  void Wake();

  v1::AgentService::StubInterface& stub_;
  const std::string helper_path_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  UniqueFd wake_;  // an eventfd
  int64_t to_grant_ = 0;
  bool is_input_closed_ = false;
  absl::Duration visit_due_;
  std::atomic<bool> is_done_{false};

  absl::Mutex mutex_;
  std::string input_ ABSL_GUARDED_BY(mutex_);
  bool has_input_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_broken_ ABSL_GUARDED_BY(mutex_) = false;  // the stream has ended
  // The helper and the terminal, while they are there: the other thread sends signals and sizes
  // itself, for this one may wait until the user reads.
  const TunnelHelper* helper_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int terminal_ ABSL_GUARDED_BY(mutex_) = -1;
  std::thread thread_;
};

}  // namespace trainyard::agent
