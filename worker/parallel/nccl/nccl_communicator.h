// Connects a gang of processes with a GPU each, or a group of them, over NCCL. The ranks find each
// other through the rendezvous folder of the run directory.
//
// NCCL refuses two ranks on one GPU, and its calls can wait without end. Therefore its
// communicators are made non-blocking, every wait here has a deadline, and a gang that failed is
// aborted.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/group.h"
#include "worker/parallel/nccl/device_handles.h"
#include "worker/run_dir/paths.h"

namespace trainyard::parallel {

struct NcclOptions {
  int rank = 0;  // global
  int world_size = 1;
  Group group = {};  // that connects; no members means the whole gang
  run_dir::RunDir run_dir{""};
  // The time in which all ranks must appear and connect.
  absl::Duration connect_timeout = absl::Seconds(60);
  // The deadline of each collective, until set_timeout changes it.
  absl::Duration timeout = absl::Seconds(60);
  // The most blocks that one of its kernels has; 0 leaves them to NCCL.
  int blocks_max = 0;
  // Ends every wait with CANCELLED when it becomes true; may be null. Must outlive the
  // communicator.
  const std::atomic<bool>* cancelled = nullptr;
};

// Enqueues collectives over the memory of the device that was current when it was made. A call
// returns when its work is enqueued; Await waits until the device has done it.
//
// Its collectives run one after the other on the device, in the order of the calls, whatever their
// streams: each waits for the one before. So ranks that make the same calls in the same order
// cannot wait for each other in a circle, even where two of NCCL's kernels find no room at once on
// a device, or something makes the device wait for all that it was given. Collectives that are
// captured take their place where their graph is launched, and the caller orders that.
//
// The errors are COLLECTIVE_TIMEOUT; PEER_LOST for what NCCL reports after the call has returned;
// CANCELLED; INTERNAL for what NCCL refuses at once. After any of them NCCL's communicator is
// aborted, and every later call returns the same error.
//
// Not thread-safe: one thread at a time uses it.
class NcclCommunicator {
 public:
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const { return membership_.rank; }  // in the group
  int world_size() const { return membership_.size(); }
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }

  // Enqueues the sum of `values` over the ranks, in place, on `stream`, which may be captured in
  // mode thread-local or relaxed. All ranks must capture, or none. What is
  // captured keeps no order with collectives on other streams, and graphs with collectives must be
  // destroyed before the communicator.
  absl::Status EnqueueAllReduce(absl::Span<float> values, cudaStream_t stream);
  // Does so with `count` values of bfloat16.
  absl::Status EnqueueAllReduceBf16(void* values, int64_t count, cudaStream_t stream);
  // Enqueues messages between ranks as one group, which counts as one collective called
  // `operation`. Empty messages are left out on both sides.
  struct Message {
    int peer = 0;
    float* values = nullptr;
    int64_t count = 0;
  };
  absl::Status EnqueueMessages(absl::string_view operation, absl::Span<const Message> sends,
                               absl::Span<const Message> receives, cudaStream_t stream);
  // Returns the collective that was enqueued last.
  const Collective& last() const { return last_collective_; }
  // Waits for `event`, which was recorded after `awaited` (or a graph of collectives), until the
  // deadline. An error names that collective.
  absl::Status Await(cudaEvent_t event, const Collective& awaited);
  // Does so for the collective that was enqueued last.
  absl::Status Await(cudaEvent_t event) { return Await(event, last_collective_); }
  // Returns an error if the gang is broken, and breaks it if a wait of this length for `awaited`
  // has passed the timeout. For waits that depend on collectives and are made elsewhere.
  absl::Status Watch(absl::Duration waited, const Collective& awaited);
  // Aborts what is enqueued, since it will never end: this rank gives up, or knows that another one
  // does. Every later call returns `status`, unless there was an error before.
  void Abort(absl::Status status);

  // Returns null once the communicator is broken. The handle is borrowed.
  ncclComm_t handle() const { return communicator_; }

 private:
  friend absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(const NcclOptions& options);
  explicit NcclCommunicator(const NcclOptions& options);

  // Collective number 0.
  absl::Status Connect(const NcclOptions& options);
  absl::Status Enqueue(absl::string_view operation, cudaStream_t stream,
                       const std::function<ncclResult_t()>& enqueue);
  // Waits until NCCL has done what a call that returned ncclInProgress began.
  absl::Status Settle(ncclResult_t result, absl::Duration deadline);
  // Polls `look` until it returns a status, or the deadline passes.
  using Look = std::function<std::optional<absl::Status>()>;
  absl::Status Poll(const Look& look, absl::Duration deadline);
  // Breaks the gang if the caller is no longer wanted, or the deadline has passed.
  absl::Status CheckDeadline(absl::Duration deadline);
  // Returns what NCCL says of the communicator, or nothing while a call is in progress.
  std::optional<absl::Status> State() const;
  // Returns OK if `event` has happened and the communicator is sound, and nothing while it has not
  // happened.
  std::optional<absl::Status> LookAt(cudaEvent_t event) const;
  // Aborts, and leaves the communicator broken by `status`.
  absl::Status Break(absl::Status status);

  // Returns the global rank, for errors.
  int me() const { return membership_.Global(membership_.rank); }

  const Membership membership_;
  const std::atomic<bool>* const cancelled_;
  int device_ = 0;
  absl::Duration timeout_;
  int64_t sequence_ = 0;
  OwnedEvent last_;             // after the collective that was enqueued last
  Collective last_collective_;  // that was enqueued
  Collective awaited_;          // errors name it
  absl::Status broken_;
  ncclComm_t communicator_ = nullptr;
};

// Connects the ranks of the group, for the current device, and returns when all are connected. Each
// group connects once. Returns COLLECTIVE_TIMEOUT if a rank does not appear, CANCELLED,
// FAILED_PRECONDITION if the folder holds another run's keys, or UNAVAILABLE if NCCL finds no way
// between the devices.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(const NcclOptions& options);

}  // namespace trainyard::parallel
