// A gang of processes with a GPU each, over NCCL. The ranks find each other through the rendezvous
// folder of the run directory.
//
// NCCL refuses two ranks on one GPU, and its calls can wait for ever: so its communicators are made
// non-blocking, every wait here has a deadline, and a gang that failed is aborted.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/nccl/device_handles.h"
#include "worker/run_dir/paths.h"

namespace trainyard::parallel {

struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  run_dir::RunDir run_dir{""};
  // For all ranks to appear and connect.
  absl::Duration connect_timeout = absl::Seconds(60);
  // Of each collective, until set_timeout.
  absl::Duration timeout = absl::Seconds(60);
  // Ends every wait with CANCELLED when it becomes true; may be null. Must outlive the
  // communicator.
  const std::atomic<bool>* cancelled = nullptr;
};

// Spans lie in the memory of the device that was current when it was made. A call returns when its
// work is done on the device.
//
// Errors: COLLECTIVE_TIMEOUT; PEER_LOST for what NCCL reports later than from the call; CANCELLED;
// INTERNAL for what it refuses at once. After any of them NCCL's communicator is aborted.
class NcclCommunicator : public Communicator {
 public:
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }

  absl::Status AllReduce(absl::Span<float> values) override;
  absl::Status ReduceScatter(absl::Span<const float> values, absl::Span<float> block) override;
  absl::Status AllGather(absl::Span<const float> block, absl::Span<float> values) override;
  absl::Status Broadcast(absl::Span<float> values, int root) override;
  // Sums one element.
  absl::Status Barrier() override;
  // One group of sends and receives. Ranks that disagree on a size time out, as far as NCCL tells.
  absl::Status AllToAll(absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive) override;
  absl::Status Send(absl::Span<const float> values, int peer) override;
  absl::Status Receive(absl::Span<float> values, int peer) override;

  // Enqueues the sum of `values` over the ranks, in place, on `stream`, which may be captured in
  // mode thread-local or relaxed; returns when it is enqueued. All ranks must capture, or none.
  // Graphs with collectives must be destroyed before the communicator.
  absl::Status EnqueueAllReduce(absl::Span<float> values, cudaStream_t stream);
  // The same of messages between ranks, all at a time: counted as one collective, `operation`.
  // Empty ones are left out on both sides.
  struct Message {
    int peer = 0;
    float* values = nullptr;
    int64_t count = 0;
  };
  absl::Status EnqueueMessages(absl::string_view operation, absl::Span<const Message> sends,
                               absl::Span<const Message> receives, cudaStream_t stream);
  // Waits for `event`, which was recorded after an enqueued collective (or a graph of them), until
  // the deadline; an error names the collective that was enqueued last.
  absl::Status Await(cudaEvent_t event);

  // Null once it is broken. Borrowed.
  ncclComm_t handle() const { return communicator_; }
  // Waits until NCCL has done what a call that returned ncclInProgress began.
  absl::Status Settle(ncclResult_t result);

 private:
  friend absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(const NcclOptions& options);
  explicit NcclCommunicator(const NcclOptions& options);

  // Collective number 0, without the barrier.
  absl::Status Connect(const NcclOptions& options);
  void Begin(absl::string_view operation);
  // The next message to or from `peer`; these are counted by themselves.
  absl::Status BeginMessage(absl::string_view operation, std::vector<int64_t>& counts, int peer);
  absl::Status CheckSizes(absl::Span<const float> values, absl::Span<const float> block) const;
  // Calls `enqueue` with the stream, and waits for what it enqueued.
  absl::Status Run(const std::function<ncclResult_t(cudaStream_t)>& enqueue);
  absl::Status Enqueue(const std::function<ncclResult_t(cudaStream_t)>& enqueue,
                       cudaStream_t stream, absl::Duration deadline);
  ncclResult_t Exchange(absl::Span<const Message> sends, absl::Span<const Message> receives,
                        cudaStream_t stream);
  // Polls `look` until it gives a status, or the deadline passes.
  using Look = std::function<std::optional<absl::Status>()>;
  absl::Status Poll(const Look& look, absl::Duration deadline);
  absl::Status AwaitSettled(ncclResult_t result, absl::Duration deadline);
  absl::Status AwaitEvent(cudaEvent_t event, absl::Duration deadline);
  // What NCCL says of the communicator: nothing while a call is in progress.
  std::optional<absl::Status> State() const;
  // Aborts, and leaves the communicator broken by `status`.
  absl::Status Break(absl::Status status);

  const int rank_;
  const int world_size_;
  const std::atomic<bool>* const cancelled_;
  int device_ = 0;
  absl::Duration timeout_;
  int64_t sequence_ = 0;
  std::vector<int64_t> sent_;      // messages, by peer
  std::vector<int64_t> received_;  // messages, by peer
  Collective collective_;
  absl::Status broken_;
  ncclComm_t communicator_ = nullptr;
  OwnedStream stream_;
  OwnedEvent done_;
  float* token_ = nullptr;  // of the barrier, on the device
};

// Returns when all ranks are connected. For the current device. COLLECTIVE_TIMEOUT where a rank
// does not appear, CANCELLED, FAILED_PRECONDITION where the folder holds another run's keys,
// UNAVAILABLE where NCCL finds no way between the devices.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(const NcclOptions& options);

}  // namespace trainyard::parallel
