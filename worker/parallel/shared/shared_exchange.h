// The exchange of ranks of one host, over the memory that they compute in: no gradient is copied to
// meet the others.
//
// A bucket is cut into one block a rank. Its owner reads the terms of all ranks where they lie, and
// writes the sum where it is wanted: into every reduction, or, sharded, into its own alone. Updated
// parameters of a block go from their owner into the parameters of every other rank. Whoever has
// nothing to do sums first what is ready everywhere, and only then waits.
//
// Who may touch what, so that nobody reads what is being written:
//   reduction and slots of a rank, from its Ready of a bucket until all ranks have reduced the
//     bucket (Land): the owner of a block alone touches that block; before and after, the rank
//     alone
//   parameters of a rank, from its Ready of the whole arena (backward reads no more of them) until
//     Finish: an owner writes its blocks; otherwise, and its own blocks always, the rank alone
// So neither waits for a reader: Finish returns when everything has come, and by then nobody
// touches this rank's memory before its next Ready. A rank that gives up may still be written to by
// those who have not noticed: its state is of no use then, as after any step that failed.
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
  // The same on all ranks, as are those below.
  std::vector<Bucket> buckets;
  int64_t gradient_elements = 0;
  bool is_sharded = false;
  // Of each wait, until set_timeout.
  absl::Duration timeout = absl::Seconds(60);
};

// Starts with one term a rank, in its reduction, in rank order. Ballots have at most kBallotMax
// values. GatherBlocks goes by way of the reductions, which must be clear and are so again.
//
// Of the time in `stats`, what is spent in Ready counts as hidden: it is the rank's share of the
// sums, done while others still compute, but backward of this rank stands still meanwhile.
std::unique_ptr<GradientExchange> MakeSharedExchange(SharedGang gang,
                                                     const SharedExchangeOptions& options);

}  // namespace trainyard::parallel
