#include "worker/trainer/model_setup.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/hosting_plan.h"

namespace trainyard::trainer {

namespace {

engine::Stem StemOf(const run_dir::ModelSpec& spec) {
  return spec.stem == run_dir::ModelSpec::Stem::kCifar ? engine::Stem::kCifar
                                                       : engine::Stem::kImagenet;
}

engine::Precision PrecisionOf(const run_dir::TrainSpec& spec) {
  switch (spec.precision) {
    case run_dir::TrainSpec::Precision::kF32:
      return engine::Precision::kF32;
    case run_dir::TrainSpec::Precision::kTf32:
      return engine::Precision::kTf32;
    case run_dir::TrainSpec::Precision::kBf16:
      return engine::Precision::kBf16;
    case run_dir::TrainSpec::Precision::kF16:
      return engine::Precision::kF16;
  }
  return engine::Precision::kF32;
}

absl::Status CoupledMicrobatch(int64_t microbatch, int64_t rows, int64_t batch) {
  return InvalidFields(
      {{"spec.memory.microbatch",
        absl::StrCat(microbatch, " is less than the ", rows,
                     " rows of a replica, and batch norm takes its statistics over all of them; "
                     "set train.replicas to ",
                     (batch + microbatch - 1) / microbatch,
                     ", which is another computation, or memory.recompute")}});
}

}  // namespace

absl::StatusOr<engine::Graph> BuildModel(const run_dir::ModelSpec& spec) {
  switch (spec.kind) {
    case run_dir::ModelSpec::Kind::kMlp:
      return engine::BuildMlp(
          {.input = spec.input, .hidden = spec.hidden, .classes = spec.classes});
    case run_dir::ModelSpec::Kind::kConvnet:
      return engine::BuildConvnet({.input = spec.input,
                                   .channels = spec.channels,
                                   .classes = spec.classes,
                                   .batch_norm = spec.batch_norm});
    case run_dir::ModelSpec::Kind::kResnet:
      return engine::BuildResnet({.input = spec.input,
                                  .depth = spec.depth,
                                  .stem = StemOf(spec),
                                  .classes = spec.classes,
                                  .zero_init_residual = spec.zero_init_residual});
    case run_dir::ModelSpec::Kind::kWideResnet:
      return engine::BuildWideResnet(
          {.input = spec.input, .depth = spec.depth, .width = spec.width, .classes = spec.classes});
    case run_dir::ModelSpec::Kind::kAlexnet:
      return engine::BuildAlexnet(
          {.input = spec.input, .classes = spec.classes, .dropout = spec.dropout});
    case run_dir::ModelSpec::Kind::kVgg:
      return engine::BuildVgg({.input = spec.input,
                               .depth = spec.depth,
                               .batch_norm = spec.batch_norm,
                               .classes = spec.classes,
                               .dropout = spec.dropout});
    case run_dir::ModelSpec::Kind::kGooglenet:
      return engine::BuildGooglenet({.input = spec.input,
                                     .stem = StemOf(spec),
                                     .classes = spec.classes,
                                     .dropout = spec.dropout});
    case run_dir::ModelSpec::Kind::kLayers:
      return engine::BuildLayers(spec.stack);
    case run_dir::ModelSpec::Kind::kGpt2:
      return engine::BuildGpt2({.layers = spec.layers,
                                .heads = spec.heads,
                                .width = spec.width,
                                .context = spec.input[0],
                                .vocabulary = spec.vocabulary,
                                .dropout = spec.dropout});
  }
  return absl::InternalError("a kind of model that BuildModel does not know");
}

bool CouplesRows(const engine::Graph& model) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), [](const engine::Node& node) {
    return node.op == engine::OpKind::kBatchNorm;
  });
}

engine::OptimizerSpec MakeOptimizer(const run_dir::OptimizerSpec& spec) {
  const auto rule = [&spec] {
    switch (spec.rule) {
      case run_dir::OptimizerSpec::Rule::kSgd:
        return engine::OptimizerSpec::Rule::kSgd;
      case run_dir::OptimizerSpec::Rule::kAdamW:
        return engine::OptimizerSpec::Rule::kAdamW;
      case run_dir::OptimizerSpec::Rule::kLars:
        return engine::OptimizerSpec::Rule::kLars;
      case run_dir::OptimizerSpec::Rule::kLamb:
        return engine::OptimizerSpec::Rule::kLamb;
    }
    return engine::OptimizerSpec::Rule::kSgd;
  };
  return {.rule = rule(),
          .momentum = spec.momentum,
          .nesterov = spec.nesterov,
          .weight_decay = spec.weight_decay,
          .beta1 = spec.beta1,
          .beta2 = spec.beta2,
          .eps = spec.eps,
          .trust_coefficient = spec.trust_coefficient,
          .decay_bias_and_norm = spec.decay_bias_and_norm,
          .clip_norm = spec.clip_norm,
          .ema_decay = spec.ema_decay};
}

engine::Schedule MakeSchedule(const run_dir::TrainingSpec& spec, int64_t steps_per_epoch,
                              int64_t total_steps) {
  const auto steps = [steps_per_epoch](double epochs) {
    return static_cast<int64_t>(std::llround(epochs * static_cast<double>(steps_per_epoch)));
  };
  engine::Schedule schedule;
  const double scale = engine::LinearScale(spec.train.global_batch, spec.optimizer.lr_base_batch);
  schedule.base_lr = scale * spec.optimizer.lr;
  schedule.final_lr = scale * spec.schedule.final_lr;
  schedule.total_steps = total_steps;
  schedule.warmup_steps = steps(spec.schedule.warmup_epochs);
  switch (spec.schedule.shape) {
    case run_dir::ScheduleSpec::Shape::kConstant:
      schedule.kind = engine::Schedule::Kind::kConstant;
      break;
    case run_dir::ScheduleSpec::Shape::kStep:
      schedule.kind = engine::Schedule::Kind::kStep;
      schedule.gamma = spec.schedule.gamma;
      for (const double epoch : spec.schedule.milestones) {
        schedule.milestones.push_back(steps(epoch));
      }
      break;
    case run_dir::ScheduleSpec::Shape::kCosine:
      schedule.kind = engine::Schedule::Kind::kCosine;
      break;
    case run_dir::ScheduleSpec::Shape::kPolynomial:
      schedule.kind = engine::Schedule::Kind::kPolynomial;
      schedule.power = spec.schedule.power;
      break;
  }
  return schedule;
}

int ReplicaCount(const run_dir::TrainSpec& spec, int world_size) {
  return spec.replicas > 0 ? spec.replicas : world_size;
}

absl::StatusOr<PreparedModel> PrepareModel(const run_dir::TrainingSpec& spec,
                                           const CompileTarget& target) {
  const int replicas = ReplicaCount(spec.train, target.world_size);
  TY_ASSIGN_OR_RETURN(const parallel::ReplicaRange hosted,
                      parallel::HostedReplicas(replicas, target.rank, target.world_size));
  PreparedModel model;
  TY_ASSIGN_OR_RETURN(model.graph, BuildModel(spec.model));
  // The loss is the last node.
  model.graph.nodes.back().attributes = engine::LossAttributes{spec.train.label_smoothing};
  model.optimizer = MakeOptimizer(spec.optimizer);
  model.couples_rows = CouplesRows(model.graph);
  const bool is_coupled_alone = model.couples_rows && !spec.train.sync_batch_norm;
  model.computes_replicas_alone = is_coupled_alone || spec.train.is_bitwise;
  const int64_t batch = spec.train.global_batch;
  const parallel::RowRange first = parallel::ReplicaRows(batch, hosted.begin, replicas);
  const parallel::RowRange last = parallel::ReplicaRows(batch, hosted.end - 1, replicas);
  model.hosted_rows = std::max<int64_t>(1, last.end - first.begin);
  // Kernels may depend on it, and a rank may come to host the largest replica.
  const int64_t replica_rows = parallel::ReplicaRows(batch, 0, replicas).size();
  int64_t rows =
      std::max<int64_t>(1, model.computes_replicas_alone ? replica_rows : model.hosted_rows);
  const int64_t microbatch = spec.memory.microbatch;
  if (microbatch > 0 && microbatch < rows) {
    if (model.couples_rows) return CoupledMicrobatch(microbatch, rows, batch);
    rows = microbatch;
  }
  model.evaluation_rows = rows;
  model.options.max_rows = rows;
  if (is_coupled_alone && !spec.train.is_bitwise && microbatch == 0 && spec.stages.count == 1) {
    const int64_t groups = std::clamp<int64_t>(target.replicas_at_once, 1,
                                               std::min<int64_t>(hosted.end - hosted.begin, batch));
    // As many of the largest replica, since hostings change.
    model.options.max_groups = groups;
    model.options.max_rows = std::min(std::max(rows, batch), groups * rows);
  }
  model.options.threads = target.threads;
  model.options.shares_memory = target.shares_memory;
  if (model.couples_rows && spec.train.sync_batch_norm && target.sum_statistics) {
    model.options.sum_statistics = target.sum_statistics;
    model.options.statistics_rank = target.rank;
    model.options.statistics_ranks = target.world_size;
  }
  if (spec.train.is_bitwise) {
    model.options.deterministic = true;
    model.options.sum_slots = SumSlotsNeeded(replicas, target.world_size);
  }
  model.options.passes.recompute = spec.memory.recompute;
  // On a GPU it takes time for the sake of memory, which the spec then asks for by its name.
  if (target.backend == kCudaBackend) model.options.passes.recompute_norms = spec.memory.recompute;
  model.options.precision = PrecisionOf(spec.train);
  return model;
}

std::vector<int64_t> ReadyEnds(const engine::Graph& model) {
  const engine::ReductionLayout layout =
      engine::LayOutReduction(engine::BuildTrainingStep(model, {}));
  std::vector<int64_t> ends;
  for (const engine::ReductionEntry& entry : layout.entries) {
    if (entry.kind != engine::ReductionEntry::Kind::kGradient) break;
    if (entry.offset > 0) ends.push_back(entry.offset);
  }
  ends.push_back(layout.gradient_elements);
  ends.push_back(layout.size);
  return ends;
}

absl::StatusOr<CompiledModel> CompileModel(const run_dir::TrainingSpec& spec,
                                           const CompileTarget& target) {
  TY_ASSIGN_OR_RETURN(const PreparedModel prepared, PrepareModel(spec, target));
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(target.backend));
  CompiledModel model;
  model.computes_replicas_alone = prepared.computes_replicas_alone;
  model.syncs_statistics = prepared.options.sum_statistics != nullptr;
  model.max_rows = prepared.options.max_rows;
  model.max_groups = prepared.options.max_groups;
  model.evaluation_rows = prepared.evaluation_rows;
  model.ready_ends = ReadyEnds(prepared.graph);
  TY_ASSIGN_OR_RETURN(model.executable,
                      backend->Compile(prepared.graph, prepared.optimizer, prepared.options));
  return model;
}

}  // namespace trainyard::trainer
