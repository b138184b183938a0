#include "worker/trainer/pipeline_setup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/split.h"
#include "worker/engine/make_backend.h"
#include "worker/parallel/group.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/agreement.h"
#include "worker/trainer/hosting_plan.h"
#include "worker/trainer/memory.h"
#include "worker/trainer/model_setup.h"
#include "worker/trainer/stage_plan.h"
#include "worker/trainer/training.h"

namespace trainyard::trainer {
namespace {

// All ranks choose the same cuts, whatever each could measure: by the shape of a common machine.
constexpr MachineSpeed kCommonMachine = {.flops_per_second = 1e11, .bytes_per_second = 1e10};

// Where rows are coupled, or sums have one order, a replica is computed as one microbatch.
bool ComputesReplicasAlone(const run_dir::TrainingSpec& spec, const engine::Graph& model) {
  return CouplesRows(model) || spec.train.is_bitwise;
}

}  // namespace

absl::Status CompileStage(const run_dir::Assignment& assignment, bool shares_memory,
                          Training& training) {
  run_dir::TrainingSpec spec = training.spec;
  spec.devices = assignment.world_size;
  const int stages = spec.stages.count;
  const int stage = training.rank % stages;
  TY_ASSIGN_OR_RETURN(const PipelinePlan plan, PlanStages(spec, {.backend = assignment.backend,
                                                                 .threads = training.threads,
                                                                 .machine = kCommonMachine}));
  const int64_t limit = MemoryOfRank(assignment, training.rank);
  const auto mine = static_cast<size_t>(stage);
  TY_RETURN_IF_ERROR(engine::CheckFits(plan.stages[mine].memory, limit, 0));
  // All pipelines are compiled as the first one, which hosts the most: kernels depend on rows.
  const CompileTarget target = {.backend = assignment.backend,
                                .rank = 0,
                                .world_size = plan.pipelines,
                                .threads = training.threads,
                                .shares_memory = shares_memory};
  TY_ASSIGN_OR_RETURN(PreparedModel model, PrepareModel(spec, target));
  TY_ASSIGN_OR_RETURN(
      const parallel::ReplicaRange hosted,
      parallel::HostedReplicas(training.identity.replicas, /*rank=*/0, plan.pipelines));
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(assignment.backend));
  const bool is_alone = ComputesReplicasAlone(spec, model.graph);
  const int64_t rows =
      is_alone
          ? parallel::ReplicaRows(spec.train.global_batch, 0, training.identity.replicas).size()
          : model.hosted_rows;
  model.options.max_groups = 1;
  const PipelineOptions options = {.schedule = ScheduleOf(spec.stages.schedule),
                                   .stages = stages,
                                   .stage = stage,
                                   .microbatches = is_alone ? 1 : plan.microbatches,
                                   .batch_rows = rows,
                                   .step_batches = is_alone ? hosted.end - hosted.begin : 1};
  TY_ASSIGN_OR_RETURN(auto executable,
                      PipelineExecutable::Create(*backend, model.graph, plan.cuts, model.optimizer,
                                                 model.options, options, *Clock::Real()));
  PipelinePlace& place = training.pipeline.emplace();
  place.pipeline = training.rank / stages;
  place.stage = stage;
  place.cuts = plan.cuts;
  place.predicted_bubble = plan.prediction.bubble;
  place.executable = executable.get();
  TY_ASSIGN_OR_RETURN(place.tensors, StateOfStages(model.graph, plan.cuts, model.optimizer));
  TY_ASSIGN_OR_RETURN(const std::vector<engine::Graph> graphs,
                      engine::SplitModel(model.graph, plan.cuts));
  training.ready_ends = ReadyEnds(graphs[mine]);
  place.whole = std::make_unique<HeldState>(place.tensors);
  training.planned_bytes = executable->memory_plan().total();
  training.executable = std::move(executable);
  training.max_rows = rows;
  training.evaluation_rows = rows;
  training.computes_replicas_alone = is_alone;
  training.replica_room = {training.identity.replicas};
  if (training.rank == 0) {
    LogInfo("planned a pipeline", {{"pipelines", absl::StrCat(plan.pipelines)},
                                   {"cuts", absl::StrJoin(plan.cuts, ", ")},
                                   {"schedule", plan.schedule},
                                   {"microbatches", absl::StrCat(plan.microbatches)},
                                   {"bubble", absl::StrCat(plan.prediction.bubble)}});
  }
  return absl::OkStatus();
}

absl::Status JoinPipeline(Training& training) {
  PipelinePlace& place = *training.pipeline;
  const parallel::ConnectGroup& connect = training.communicators.connect_group;
  const int stages = training.spec.stages.count;
  TY_ASSIGN_OR_RETURN(PipelineLinks links,
                      ConnectNeighbours(connect, place.pipeline * stages, stages, place.stage));
  place.executable->Connect(std::move(links));
  parallel::Communicator& host = *training.communicators.host;
  if (host.world_size() > stages) {
    TY_ASSIGN_OR_RETURN(place.siblings, connect(RanksOfStage("siblings", place.stage, stages,
                                                             host.world_size() / stages)));
  }
  const auto give = [&place](size_t i) -> absl::StatusOr<std::vector<float>> {
    std::vector<float> values(
        static_cast<size_t>(engine::ElementCount(place.tensors[i].tensor.shape)));
    TY_RETURN_IF_ERROR(place.whole->ReadState(i, absl::MakeSpan(values)));
    return values;
  };
  // The first pipeline has the first ranks of the gang.
  if (place.pipeline == 0) {
    TY_RETURN_IF_ERROR(ScatterState(place.tensors, give, host, *place.executable));
  }
  if (place.siblings == nullptr) return absl::OkStatus();
  return BroadcastState(*place.siblings, *place.executable);
}

absl::Status GatherStages(Training& training) {
  PipelinePlace& place = *training.pipeline;
  if (place.pipeline != 0) return absl::OkStatus();
  return GatherState(place.tensors, *place.executable, *training.communicators.host,
                     [&place](size_t i, const std::vector<float>& values) {
                       return place.whole->WriteState(i, values);
                     });
}

}  // namespace trainyard::trainer
