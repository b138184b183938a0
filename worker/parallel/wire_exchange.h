// Implements GradientExchange over any communicator of host memory. A thread of its own runs the
// collectives, in the order of the buckets, while the training computes.
//
// The collectives of a step are, on every rank: the agreement (in the first step, and in the first
// one after SetPlan), the ballots, each bucket's sums as they become ready, and if it is sharded
// each bucket's parameters as they are shared.
#pragma once

#include <memory>

#include "worker/parallel/block_exchange.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/gradient_exchange.h"

namespace trainyard::parallel {

// The exchange owns the communicator, and nobody else may use it. The communicator's timeout is
// that of each collective; the time that the training takes between two calls has no limit here.
//
// A failure ends the step. The next call returns it, with the step and the bucket, and so do all
// later ones. When an exchange is destroyed during a step, it waits for the collective that is
// under way, at most for the timeout.
std::unique_ptr<GradientExchange> MakeWireExchange(std::unique_ptr<Communicator> communicator,
                                                   WireExchangeOptions options);

}  // namespace trainyard::parallel
