// Exchanges gradients between ranks of one host, in the memory in which they compute. No gradient
// is copied for the exchange.
//
// A bucket is cut into one block for each rank. The owner of a block reads the terms of all ranks
// in place, and writes the sum to where it is needed: into every reduction or, if it is sharded,
// only into its own. Updated parameters of a block go from their owner into the parameters of every
// other rank. A rank that has to wait first sums what is ready everywhere.
//
// These rules keep a rank from reading what is being written:
//   reduction and slots of a rank, from its Ready of a bucket until all ranks have reduced the
//     bucket (Land): only the owner of a block touches that block; before and after, only the rank
//   parameters of a rank, from its Ready of the whole arena (backward reads no more of them) until
//     Finish: an owner writes its blocks; at other times, and always for its own blocks, only the
//     rank
// So nobody waits for a reader. Finish returns when everything has come, and by then nobody touches
// this rank's memory before its next Ready. A rank that gives up may still be written to by those
// who have not noticed; its state is useless then, as after any step that failed.
//
// A rank whose process ends is noticed within milliseconds, a silent one by the timeout. Errors
// name step and bucket, the ranks, `reduce` or `share`, and its sequence number.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "worker/parallel/buckets.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/shared/shared_gang.h"

namespace trainyard::parallel {

struct SharedExchangeOptions {
  // This and what follows is the same on all ranks.
  std::vector<Bucket> buckets;
  int64_t gradient_elements = 0;
  bool is_sharded = false;
  // The deadline of each wait, until set_timeout changes it.
  absl::Duration timeout = absl::Seconds(60);
};

// Makes an exchange that starts with one term for each rank, in its reduction, in rank order.
// Ballots have at most kBallotMax values. GatherBlocks uses the reductions, which must be clear and
// are clear again afterwards.
//
// In `stats`, the time that is spent in Ready counts as hidden. It is the rank's share of the sums,
// computed while others still compute, although backward of this rank stands still meanwhile.
std::unique_ptr<GradientExchange> MakeSharedExchange(SharedGang gang,
                                                     const SharedExchangeOptions& options);

}  // namespace trainyard::parallel
