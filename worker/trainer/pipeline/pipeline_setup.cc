// Plans the pipeline as all its ranks do, and compiles the stage of this one.
#include "worker/trainer/pipeline/pipeline_setup.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/split.h"
#include "worker/engine/make_backend.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/plan/planned_pipeline.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::trainer {
namespace {

// A replica is computed as one microbatch if its rows are coupled or if sums have one order.
bool ComputesReplicasAlone(const v1::JobSpec& spec, const engine::Graph& model) {
  return CouplesRows(model) || IsBitwise(spec);
}

void LogPlan(const PlannedPipeline& plan) {
  LogInfo("planned a pipeline", {{"pipelines", absl::StrCat(plan.pipelines)},
                                 {"cuts", absl::StrJoin(plan.cuts, ", ")},
                                 {"schedule", plan.schedule},
                                 {"microbatches", absl::StrCat(plan.microbatches)},
                                 {"bubble", absl::StrCat(plan.prediction.bubble)}});
}

}  // namespace

absl::StatusOr<CompiledStage> CompileStage(v1::JobSpec spec, const StageTarget& target) {
  spec.mutable_devices()->set_count(target.world_size);
  const int stages = spec.stages().count();
  const int stage = target.rank % stages;
  TY_ASSIGN_OR_RETURN(const PlannedPipeline plan, PlanPipeline(spec, {.backend = target.backend,
                                                                      .threads = target.threads,
                                                                      .machine = kCommonMachine}));
  const auto mine = static_cast<size_t>(stage);
  TY_RETURN_IF_ERROR(engine::CheckFits(plan.stages[mine].memory, target.memory_bytes, 0));
  // All pipelines are compiled as the first one, which hosts the most, since kernels depend on the
  // number of rows.
  TY_ASSIGN_OR_RETURN(PreparedModel model,
                      PrepareModel(spec, {.backend = target.backend,
                                          .rank = 0,
                                          .world_size = plan.pipelines,
                                          .threads = target.threads,
                                          .shares_memory = target.shares_memory}));
  TY_ASSIGN_OR_RETURN(const parallel::ReplicaRange hosted,
                      parallel::HostedReplicas(target.replicas, /*rank=*/0, plan.pipelines));
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(target.backend));
  const bool is_alone = ComputesReplicasAlone(spec, model.graph);
  const int64_t rows =
      is_alone ? parallel::ReplicaRows(spec.train().global_batch(), 0, target.replicas).size()
               : model.hosted_rows;
  model.options.max_groups = 1;
  model.options.choices = target.choices;
  const PipelineOptions options = {.schedule = ScheduleOf(spec.stages().schedule()),
                                   .stages = stages,
                                   .stage = stage,
                                   .microbatches = is_alone ? 1 : plan.microbatches,
                                   .batch_rows = rows,
                                   .step_batches = is_alone ? hosted.end - hosted.begin : 1};
  TY_ASSIGN_OR_RETURN(const std::vector<engine::Graph> graphs,
                      engine::SplitModel(model.graph, plan.cuts));
  model.options.owned = OwnedRanges(spec, target.backend, graphs[mine],
                                    /*rank=*/target.rank / stages, plan.pipelines);
  TY_ASSIGN_OR_RETURN(auto executable,
                      PipelineExecutable::Create(*backend, model.graph, plan.cuts, model.optimizer,
                                                 model.options, options, *Clock::Real()));
  CompiledStage compiled;
  TY_ASSIGN_OR_RETURN(compiled.tensors, StateOfStages(model.graph, plan.cuts, model.optimizer));
  compiled.executable = executable.get();
  compiled.predicted_bubble = plan.prediction.bubble;
  compiled.model.precision = model.options.precision;
  compiled.model.planned_bytes = executable->memory_plan().total();
  compiled.model.executable = std::move(executable);
  compiled.model.max_rows = rows;
  compiled.model.evaluation_rows = rows;
  compiled.model.computes_replicas_alone = is_alone;
  compiled.model.ready_ends = ReadyEnds(graphs[mine]);
  if (target.rank == 0) LogPlan(plan);
  return compiled;
}

}  // namespace trainyard::trainer
