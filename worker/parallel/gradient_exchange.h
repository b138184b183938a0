// How the gradients of a step meet: port of who sums reduction arenas over the ranks, bucket by
// bucket, while backward still computes. One step of a rank:
//
//   Begin(ballot)
//   backward: Ready(end) as [0, end) of all its terms becomes final
//   for each bucket, in order:
//     Land(bucket)              the sum is there: of the whole bucket, or of this rank's block
//     executable.UpdateRange(own block)     where sharded
//     Share(bucket)             sharded: parameters of the own block leave for the others
//   Finish(ballots)             all is there; what others may still read has been read
//
// Sharded: reduce_scatter, the update of a block by its rank alone, all_gather of the parameters.
// Not sharded: all_reduce, each rank updates all. The same bytes, 2(n-1)/n of the arena each way
// where every rank has one term.
//
// Implementations: `shared` (memory that the ranks of one host share: no copy but the sum itself),
// `wire` (any Communicator of host memory, on a thread of its own), `nccl` (device memory).
#pragma once

#include <cstdint>
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
  enum class Kind { kReduce, kShare, kWait };  // kWait: the training itself waited
  Kind kind = Kind::kReduce;
  int64_t bucket = 0;  // -1: of the step as a whole
  absl::Duration begin;
  absl::Duration end;
  int64_t bytes = 0;  // sent by this rank
};

// Of one step.
struct CommStats {
  absl::Duration total;    // some collective was under way, or a peer waited for
  absl::Duration exposed;  // of that: the training could do nothing else
  int64_t bytes_sent = 0;
  std::vector<CommEvent> events;  // only while traced

  // In [0, 1]; 1 where there was no communication.
  double HiddenFraction() const;
};

// Who has which terms, and how they add up. Equal on all ranks.
struct ExchangePlan {
  // By rank: number of terms.
  std::vector<int> terms;
  // Over the terms of all ranks, in rank order.
  SumPlan sum;
};

// One thread uses it: that of the training.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  virtual absl::Span<const Bucket> buckets() const = 0;
  virtual bool is_sharded() const = 0;
  // The part of a bucket that this rank updates: all of it unless sharded. Behind the gradients:
  // always all of it.
  virtual Bucket OwnBlock(size_t bucket) const = 0;

  // Between two steps. `term_slots`: where this rank's terms lie (LocalSums).
  virtual absl::Status SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) = 0;
  virtual void set_timeout(absl::Duration timeout) = 0;
  virtual void set_tracing(bool traces) = 0;

  // Every rank's ballot has the same length; what it says reaches all by Finish. `step`: for
  // errors, 1-based.
  virtual absl::Status Begin(int64_t step, absl::Span<const double> ballot) = 0;
  virtual absl::Status Ready(int64_t end) = 0;
  virtual absl::Status Land(size_t bucket) = 0;
  virtual absl::Status Share(size_t bucket) = 0;
  // `ballots`: [world_size, length], by rank.
  virtual absl::Status Finish(absl::Span<double> ballots) = 0;
  // Of the last step that was finished.
  virtual const CommStats& stats() const = 0;

  // `values` has parameters().size() elements, of which each rank has its own blocks: all have all
  // afterwards. For checkpoints of sharded state.
  virtual absl::Status GatherBlocks(absl::Span<float> values) = 0;
};

}  // namespace trainyard::parallel
