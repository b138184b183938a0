// Derives a rank's share of the steps from the hosting. It is called again whenever replicas move.
#include "worker/trainer/run/gang_hosting.h"

#include "common/base/status_macros.h"
#include "worker/trainer/plan/hosting_plan.h"

namespace trainyard::trainer {
namespace {

parallel::ReplicaRange HostedBy(const RunSetup& setup, const parallel::Hosting& hosting) {
  return hosting[static_cast<size_t>(setup.place.pipeline)];
}

}  // namespace

std::vector<int> CountsOf(const parallel::Hosting& hosting) {
  std::vector<int> counts;
  for (const parallel::ReplicaRange& range : hosting) counts.push_back(range.end - range.begin);
  return counts;
}

std::vector<int> TermSlots(const RunSetup& setup, const parallel::Hosting& hosting) {
  if (!setup.is_bitwise) return {-1};
  return parallel::PlanLocalSums(setup.replicas, HostedBy(setup, hosting)).term_slots;
}

absl::StatusOr<HostedShare> TakeShare(const RunSetup& setup, const parallel::Hosting& hosting,
                                      const StepSequence& steps, engine::Executable& executable,
                                      parallel::GradientExchange* exchange) {
  const parallel::ReplicaRange hosted = HostedBy(setup, hosting);
  HostedShare share{.steps = steps.WithHosted(hosted), .sums = std::nullopt};
  if (setup.is_bitwise) {
    share.sums = parallel::PlanLocalSums(setup.replicas, hosted);
    if (share.sums->slots > 0 && executable.sum_slots() == nullptr) {
      return absl::UnimplementedError(
          "spec.train.reproducibility: this backend cannot sum several replicas in one order; use "
          "as many devices as replicas, or statistical");
    }
  }
  if (exchange != nullptr) {
    TY_RETURN_IF_ERROR(exchange->SetPlan(PlanExchange(setup.replicas, hosting, setup.is_bitwise),
                                         TermSlots(setup, hosting)));
  }
  return share;
}

}  // namespace trainyard::trainer
