#include "worker/trainer/hosting_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::trainer {
namespace {

// Up to so many replicas every range is looked at; beyond, a bound will do.
constexpr int kExactMax = 64;

}  // namespace

parallel::Group AllRanks(const std::string& name, const parallel::Hosting& hosting) {
  parallel::Group group{.name = name, .members = std::vector<int>(hosting.size())};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

parallel::Group RanksOfStage(const std::string& name, int stage, int stages, int pipelines) {
  parallel::Group group{.name = absl::StrCat("stage_", stage, "_", name), .members = {}};
  for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
    group.members.push_back(pipeline * stages + stage);
  }
  return group;
}

parallel::Group Summands(const std::string& name, const Training& training,
                         const parallel::Hosting& hosting) {
  if (!training.pipeline.has_value()) return AllRanks(name, hosting);
  return RanksOfStage(name, training.pipeline->stage, training.spec.stages.count,
                      static_cast<int>(hosting.size()));
}

int SumSlotsNeeded(int replicas, int world_size) {
  if (world_size == 1) return parallel::PlanLocalSums(replicas, {0, replicas}).slots;
  if (world_size == replicas) return 0;
  if (replicas > kExactMax) {
    // A range has at most two nodes of each level.
    return 2 * static_cast<int>(std::bit_width(static_cast<unsigned>(replicas)));
  }
  int slots = 0;
  const int most = replicas - world_size + 1;  // the others host one each
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

std::vector<int> TermSlots(const Training& training, const parallel::Hosting& hosting) {
  if (!training.spec.train.is_bitwise) return {-1};
  return parallel::PlanLocalSums(training.identity.replicas, hosting[training.host()]).term_slots;
}

absl::Status SetHosting(Training& training, const parallel::Hosting& hosting) {
  const parallel::ReplicaRange hosted = hosting[training.host()];
  const int replicas = training.identity.replicas;
  if (training.spec.train.is_bitwise) {
    training.sums = parallel::PlanLocalSums(replicas, hosted);
    if (training.sums->slots > 0 && training.executable->sum_slots() == nullptr) {
      return absl::UnimplementedError(
          "spec.train.reproducibility: this backend cannot sum several replicas in one order; use "
          "as many devices as replicas, or statistical");
    }
  }
  if (training.exchange != nullptr) {
    TY_RETURN_IF_ERROR(
        training.exchange->SetPlan(PlanExchange(replicas, hosting, training.spec.train.is_bitwise),
                                   TermSlots(training, hosting)));
  }
  training.plan = training.plan.WithHosted(hosted);
  training.hosting = hosting;
  training.identity.hosting.clear();
  for (const parallel::ReplicaRange& range : hosting) {
    training.identity.hosting.push_back(range.end - range.begin);
  }
  return absl::OkStatus();
}

}  // namespace trainyard::trainer
