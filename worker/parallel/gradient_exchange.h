// Defines the port by which the gradients of a step are exchanged. It sums reduction arenas over
// the ranks, bucket by bucket, while backward still computes. One step of a rank:
//
//   Begin(ballot)
//   backward: Ready(end) as [0, end) of all its terms becomes final
//   for each bucket, in order:
//     Land(bucket)              the sum has come: of the whole bucket, or of this rank's block
//     update of the own block   where the optimizer is sharded
//     Share(bucket)             sharded: parameters of the own block leave for the others
//   End()                       what this rank's device does next finds everything there
//   Finish(ballots)             everything has come, and others have read what they need
//
// Between devices the host need not wait for a step before it enqueues the next one: up to lag()
// steps may have ended without being finished. Finish then waits for the oldest of them.
//
// Sharded: reduce_scatter, the update of a block by its rank, all_gather of the parameters. Not
// sharded: all_reduce, and each rank updates everything. Either way a rank sends 2(n-1)/n of the
// arena where every rank has one term.
//
// Implementations: `shared` (memory that the ranks of one host share; the sum is the only copy),
// `wire` (any Communicator over host memory, on a thread of its own), `nccl` (device memory), and
// `staged` (device memory, by way of one over host memory).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/parallel/buckets.h"
#include "worker/parallel/replicas.h"
#include "worker/parallel/sum_tree.h"

namespace trainyard::parallel {

// One span of a step's communication, for timelines. Times are Clock::Uptime.
struct CommEvent {
  // kCompute: a device was busy with forward and backward. kWait: the training itself waited.
  enum class Kind { kReduce, kShare, kWait, kCompute };
  Kind kind = Kind::kReduce;
  int64_t bucket = 0;  // -1: it belongs to the step as a whole
  absl::Duration begin;
  absl::Duration end;
  int64_t bytes = 0;  // sent by this rank
};

// The communication of one step.
struct CommStats {
  absl::Duration total;    // a collective was under way, or a peer was waited for
  absl::Duration exposed;  // the part of it in which the training could do nothing else
  // From Begin to the end of backward, by the clock of the device on which this rank computes.
  std::optional<absl::Duration> computed;
  int64_t bytes_sent = 0;
  std::vector<CommEvent> events;  // only while traced

  // Returns a number in [0, 1], which is 1 if there was no communication.
  double HiddenFraction() const;
};

// The terms of each rank, and the order in which they add up. It is equal on all ranks.
struct ExchangePlan {
  // The number of terms, by rank.
  std::vector<int> terms;
  // The order in which the terms of all ranks add up, which come in rank order.
  SumPlan sum;
};

// The port. Only the thread of the training uses it.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  virtual absl::Span<const Bucket> buckets() const = 0;
  virtual bool is_sharded() const = 0;
  // Returns the part of a bucket that this rank updates, which is all of it unless sharded. Buckets
  // after the gradients are always updated whole.
  virtual Bucket OwnBlock(size_t bucket) const = 0;

  // Sets the plan, when all steps are finished. `term_slots` says where this rank's terms lie
  // (LocalSums).
  virtual absl::Status SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) = 0;
  virtual void set_timeout(absl::Duration timeout) = 0;
  virtual void set_tracing(bool traces) = 0;

  // Begins step `step`, counted from 1, which errors name. Ballots have the same length on every
  // rank; all ranks know all of them by Finish.
  virtual absl::Status Begin(int64_t step, absl::Span<const double> ballot) = 0;
  virtual absl::Status Ready(int64_t end) = 0;
  virtual absl::Status Land(size_t bucket) = 0;
  virtual absl::Status Share(size_t bucket) = 0;
  // Call it after the last bucket, with at most lag() steps ended and not finished.
  virtual absl::Status End() { return absl::OkStatus(); }
  // Finishes the oldest step that has ended. `ballots` is [world_size, length], by rank.
  virtual absl::Status Finish(absl::Span<double> ballots) = 0;
  // Ends a wait for the device that has taken `waited`: returns an error if the gang has failed or
  // the timeout has passed.
  virtual absl::Status Watch(absl::Duration) { return absl::OkStatus(); }
  // Returns how many steps may have ended and not be finished when the next one begins. It is equal
  // on all ranks.
  virtual int lag() const { return 0; }
  // Describes the last step that was finished.
  virtual const CommStats& stats() const = 0;

  // Gives all ranks all of `values`, which has parameters().size() elements, and of which each rank
  // has its own blocks. For checkpoints of sharded state.
  virtual absl::Status GatherBlocks(absl::Span<float> values) = 0;
};

}  // namespace trainyard::parallel
