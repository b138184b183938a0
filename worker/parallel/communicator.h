// Defines a gang's live collective handle. `local` (threads of one process, for tests), `gloo`
// (TCP) and `shm` (memory that the ranks of one host share) implement it.
//
// Spans lie in the memory of the host. A call blocks until this rank's part of the collective is
// done. GPUs do not talk through this port: nccl/nccl_communicator.h enqueues its collectives.
//
// All ranks call the same collectives in the same order with the same sizes. Every call has a
// deadline; a call that fails or times out names rank, operation and sequence number, and leaves
// the communicator unusable.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace trainyard::parallel {

// The port. It is not thread-safe: one thread at a time calls it.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Sums `values` over the ranks, element by element, in place. All ranks get the same bits. With
  // more than two ranks, a rank sends at most 2(n-1)/n of the bytes.
  virtual absl::Status AllReduce(absl::Span<float> values) = 0;
  // Concatenates the ranks' blocks into `values`, in rank order.
  virtual absl::Status AllGather(absl::Span<const float> block, absl::Span<float> values) = 0;
  // Rank r's send[p] becomes rank p's receive[r]. Sizes agree pair by pair, and may be 0. A rank's
  // own part is copied. Takes 1 step.
  virtual absl::Status AllToAll(absl::Span<const absl::Span<const float>> send,
                                absl::Span<const absl::Span<float>> receive) = 0;
  // These pass a message between two ranks, which count their messages alike; the other ranks take
  // no part. Send returns when `values` may be written again, which may be before the other rank
  // receives or only then. Two ranks that send to each other at the same time use AllToAll, or two
  // communicators.
  virtual absl::Status Send(absl::Span<const float> values, int peer) = 0;
  virtual absl::Status Receive(absl::Span<float> values, int peer) = 0;
  // Copies `values` of `root` to all ranks.
  virtual absl::Status Broadcast(absl::Span<float> values, int root) = 0;

  // Sets the deadline of every later call, which returns DEADLINE_EXCEEDED past it.
  virtual void set_timeout(absl::Duration timeout) = 0;
};

}  // namespace trainyard::parallel
