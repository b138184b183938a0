// Implements data parallelism: every rank has the whole model and some of the replicas, which may
// move to other ranks that compute faster.
#include "worker/trainer/run/whole_step.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/parallel/hosting.h"
#include "worker/trainer/plan/memory.h"
#include "worker/trainer/run/agreement.h"

namespace trainyard::trainer {

absl::Status StatisticsLine::Sum(absl::Span<double> values) {
  TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(*communicator, values));
  std::copy_n(all.begin(), values.size(), values.begin());
  for (size_t i = values.size(); i < all.size(); ++i) values[i % values.size()] += all[i];
  return absl::OkStatus();
}

WholeStep::WholeStep(const RunSetup& setup, CompiledModel model, int replica_room,
                     std::shared_ptr<StatisticsLine> statistics)
    : StepStrategy(std::move(model), replica_room),
      place_(setup.place),
      replicas_(setup.replicas),
      statistics_(std::move(statistics)) {}

absl::StatusOr<std::unique_ptr<StepStrategy>> WholeStep::Compile(const RunSetup& setup,
                                                                 const std::string& choices) {
  CompileTarget target = {.backend = setup.assignment.backend,
                          .rank = setup.rank,
                          .world_size = setup.world_size(),
                          .threads = setup.mine().threads,
                          .shares_memory = setup.shares_memory,
                          .choices = choices};
  const int64_t limit = setup.memory_bytes;
  TY_ASSIGN_OR_RETURN(target.replicas_at_once, ReplicasAtOnce(setup.spec, target, limit));
  TY_ASSIGN_OR_RETURN(const engine::CompilePlan plan, PlanRank(setup.spec, target));
  TY_RETURN_IF_ERROR(CheckMemory(setup.spec, target, plan.memory, limit));
  TY_ASSIGN_OR_RETURN(const int room, ReplicasThatFit(setup.spec, target, plan.memory, limit));
  auto line = std::make_shared<StatisticsLine>();
  if (setup.world_size() > 1) {
    target.sum_statistics = [line](absl::Span<double> values) { return line->Sum(values); };
  }
  TY_ASSIGN_OR_RETURN(CompiledModel model, CompileModel(setup.spec, target));
  // A plan measures nothing, and a measured choice may need more workspace.
  model.planned_bytes = std::max(plan.memory.total(), model.executable->memory_plan().total());
  if (!model.syncs_statistics) line = nullptr;
  return std::unique_ptr<StepStrategy>(
      new WholeStep(setup, std::move(model), room, std::move(line)));
}

// Takes the hosting that was measured before on devices of the same types, or an even one.
absl::StatusOr<GangHosting> WholeStep::ChooseHosting(const Gang& gang, std::vector<int> room,
                                                     const RunIdentity& before) {
  const size_t ranks = gang.device_types.size();
  std::vector<double> counts(ranks, 0);
  if (before.hosting.size() == ranks && before.device_types == gang.device_types) {
    counts.assign(before.hosting.begin(), before.hosting.end());
  }
  TY_RETURN_IF_ERROR(BroadcastNumbers(*gang.lines.host, absl::MakeSpan(counts)));
  // With statistics over all ranks, the rows of each rank are one batch, and the ranks wait for
  // each other in batch norm, so that their times do not show their speeds.
  GangHosting hosting{.ranges = {},
                      .reason = "as before, on devices of the same types",
                      .room = std::move(room),
                      .may_change = ranks > 1 && statistics_ == nullptr};
  int begin = 0;
  bool is_possible = statistics_ == nullptr;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int count = static_cast<int>(counts[rank]);
    is_possible &= count >= 1 && count <= hosting.room[rank];
    hosting.ranges.push_back({begin, begin + count});
    begin += count;
  }
  TY_ASSIGN_OR_RETURN(parallel::Hosting even,
                      parallel::EvenHosting(replicas_, static_cast<int>(ranks)));
  if (!is_possible || begin != replicas_ || hosting.ranges == even) {
    hosting.ranges = std::move(even);
    hosting.reason = ranks == 1 ? "one rank computes all" : "even: no speeds were measured yet";
  }
  return hosting;
}

absl::Status WholeStep::Join(const Communicators& lines) {
  host_ = lines.host.get();
  TY_RETURN_IF_ERROR(BroadcastState(*host_, executable()));
  if (statistics_ == nullptr) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(statistics_->communicator,
                      lines.connect_group(AllRanks("batch_norm", place_)));
  return absl::OkStatus();
}

std::unique_ptr<StepCompute> WholeStep::MakeCompute(Trace& trace, Clock& clock) {
  return std::make_unique<StepCompute>(executable(), trace, clock, statistics_ != nullptr);
}

// The others' ballots come with their gradients; a single rank has only its own.
absl::StatusOr<std::vector<Ballot>> WholeStep::Vote(const Ballot& mine) {
  return std::vector<Ballot>{mine};
}

void WholeStep::set_timeout(absl::Duration timeout) {
  if (statistics_ != nullptr) statistics_->communicator->set_timeout(timeout);
}

}  // namespace trainyard::trainer
