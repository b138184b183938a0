// Plans the sums of a bitwise run, which follow a tree over the replicas, whichever ranks host
// them.
#include "worker/trainer/plan/hosting_plan.h"

#include <algorithm>
#include <bit>

#include "worker/parallel/sum_tree.h"

namespace trainyard::trainer {
namespace {

// With up to this many replicas every possible range is looked at. With more, a bound is good
// enough.
constexpr int kExactMax = 64;

}  // namespace

int SumSlotsNeeded(int replicas, int world_size) {
  if (world_size == 1) return parallel::PlanLocalSums(replicas, {0, replicas}).slots;
  if (world_size == replicas) return 0;
  if (replicas > kExactMax) {
    // A range covers at most two nodes of each level of the tree.
    return 2 * static_cast<int>(std::bit_width(static_cast<unsigned>(replicas)));
  }
  int slots = 0;
  const int most = replicas - world_size + 1;  // every other rank hosts at least one
  for (int begin = 0; begin < replicas; ++begin) {
    for (int end = begin + 1; end <= std::min(begin + most, replicas); ++end) {
      slots = std::max(slots, parallel::PlanLocalSums(replicas, {begin, end}).slots);
    }
  }
  return slots;
}

parallel::ExchangePlan PlanExchange(int replicas, const parallel::Hosting& hosting,
                                    bool is_bitwise) {
  if (!is_bitwise) {
    return {.terms = std::vector<int>(hosting.size(), 1),
            .sum = parallel::PlanRankSum(static_cast<int>(hosting.size()))};
  }
  parallel::ExchangePlan plan;
  for (const parallel::ReplicaRange& range : hosting) {
    plan.terms.push_back(static_cast<int>(parallel::TermsOf(replicas, range).size()));
  }
  plan.sum = parallel::PlanTreeSum(replicas, hosting);
  return plan;
}

}  // namespace trainyard::trainer
