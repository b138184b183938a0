// From a hosting to what the parts of a step need of it.
#pragma once

#include "absl/status/status.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/hosting.h"
#include "worker/trainer/run/training.h"

namespace trainyard::trainer {

// A line of all ranks, beside the first one.
parallel::Group AllRanks(const std::string& name, const parallel::Hosting& hosting);
// One of the ranks that have this stage, by pipeline. Named "stage_<stage>_<name>".
parallel::Group RanksOfStage(const std::string& name, int stage, int stages, int pipelines);
// One of the ranks that sum gradients with this one, in the order of the hosting.
parallel::Group Summands(const std::string& name, const Training& training,
                         const parallel::Hosting& hosting);

// Buffers of partial sums that a rank may need, whatever it comes to host.
int SumSlotsNeeded(int replicas, int world_size);

// Who has which terms: of bitwise runs the nodes of the tree over the replicas, else one a rank.
parallel::ExchangePlan PlanExchange(int replicas, const parallel::Hosting& hosting,
                                    bool is_bitwise);

// Where the terms of this rank lie: slots of the executable, or -1 for its reduction.
std::vector<int> TermSlots(const Training& training, const parallel::Hosting& hosting);

// Between two steps, all ranks alike. Tells the exchange, and sets training.hosting, .plan and
// .sums; whoever reads rows ahead must start anew.
absl::Status SetHosting(Training& training, const parallel::Hosting& hosting);

}  // namespace trainyard::trainer
