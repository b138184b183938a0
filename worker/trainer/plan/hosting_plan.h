// Derives from a hosting how gradients are summed.
#pragma once

#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/hosting.h"

namespace trainyard::trainer {

// Returns how many buffers of partial sums a rank may need, whatever it comes to host.
int SumSlotsNeeded(int replicas, int world_size);

// Says who brings which terms of the sum. In a bitwise run these are nodes of the tree over the
// replicas; else every rank brings one.
parallel::ExchangePlan PlanExchange(int replicas, const parallel::Hosting& hosting,
                                    bool is_bitwise);

}  // namespace trainyard::trainer
