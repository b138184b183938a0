// Converts the spec to the structs of the engine, in this one place. These know no protobuf, so a
// new field of the spec is passed to the engine only here.
#include "worker/trainer/plan/model_setup.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/spec/networks.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"
#include "worker/parallel/buckets.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/plan/hosting_plan.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::trainer {

namespace {

// The server hands out specs that name a precision. In a run that was started by hand, the rank's
// own device decides what `auto` means.
absl::StatusOr<engine::Precision> PrecisionOf(const v1::TrainSpec& spec,
                                              absl::string_view backend) {
  switch (spec.precision()) {
    case v1::PRECISION_AUTO: {
      TY_ASSIGN_OR_RETURN(const auto made, engine::MakeBackend(backend));
      return made->auto_precision();
    }
    case v1::PRECISION_TF32:
      return engine::Precision::kTf32;
    case v1::PRECISION_BF16:
      return engine::Precision::kBf16;
    case v1::PRECISION_F16:
      return engine::Precision::kF16;
    default:
      return engine::Precision::kF32;
  }
}

double BaseRate(const v1::OptimizerSpec& spec) {
  switch (spec.rule_case()) {
    case v1::OptimizerSpec::kAdamw:
      return spec.adamw().lr();
    case v1::OptimizerSpec::kAdam:
      return spec.adam().lr();
    case v1::OptimizerSpec::kLars:
      return spec.lars().lr();
    case v1::OptimizerSpec::kLamb:
      return spec.lamb().lr();
    case v1::OptimizerSpec::kSgd:
    case v1::OptimizerSpec::RULE_NOT_SET:
      break;
  }
  return spec.sgd().lr();
}

// Returns the options that decide which kernels run. Promising the same bits, on any device of a
// type and with any number of threads, costs time, so only `reproducibility: bitwise` pays for it.
absl::StatusOr<engine::CompileOptions> StepOptionsOf(const v1::JobSpec& spec,
                                                     absl::string_view backend) {
  engine::StepChoices choices = {.deterministic = IsBitwise(spec),
                                 .recompute = spec.memory().recompute()};
  TY_ASSIGN_OR_RETURN(choices.precision, PrecisionOf(spec.train(), backend));
  return engine::OptionsOf(backend, choices);
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

absl::StatusOr<engine::Graph> BuildModel(const v1::ModelSpec& spec) {
  if (spec.model_case() == v1::ModelSpec::MODEL_NOT_SET) {
    return absl::InternalError("a spec without a model was not refused");
  }
  return engine::BuildNetwork(spec::NetworkOf(spec));
}

bool CouplesRows(const engine::Graph& model) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), [](const engine::Node& node) {
    return node.op == engine::OpKind::kBatchNorm;
  });
}

engine::OptimizerSpec MakeOptimizer(const v1::OptimizerSpec& spec) {
  engine::OptimizerSpec optimizer;
  const auto take_momentum = [&optimizer](const auto& rule) {
    optimizer.momentum = rule.momentum();
    optimizer.nesterov = rule.nesterov();
  };
  const auto take_betas = [&optimizer](const auto& rule) {
    optimizer.beta1 = rule.betas(0);
    optimizer.beta2 = rule.betas(1);
    optimizer.eps = rule.eps();
  };
  const auto take_decay = [&optimizer](const auto& rule) {
    optimizer.weight_decay = rule.weight_decay();
    optimizer.decay_bias_and_norm = rule.decay_bias_and_norm();
  };
  switch (spec.rule_case()) {
    case v1::OptimizerSpec::kAdamw:
      optimizer.rule = engine::OptimizerSpec::Rule::kAdamW;
      take_betas(spec.adamw());
      take_decay(spec.adamw());
      break;
    case v1::OptimizerSpec::kAdam:
      optimizer.rule = engine::OptimizerSpec::Rule::kAdam;
      take_betas(spec.adam());
      take_decay(spec.adam());
      break;
    case v1::OptimizerSpec::kLars:
      optimizer.rule = engine::OptimizerSpec::Rule::kLars;
      take_momentum(spec.lars());
      take_decay(spec.lars());
      optimizer.eps = spec.lars().eps();
      optimizer.trust_coefficient = spec.lars().trust_coefficient();
      break;
    case v1::OptimizerSpec::kLamb:
      optimizer.rule = engine::OptimizerSpec::Rule::kLamb;
      take_betas(spec.lamb());
      take_decay(spec.lamb());
      break;
    case v1::OptimizerSpec::kSgd:
    case v1::OptimizerSpec::RULE_NOT_SET:
      optimizer.rule = engine::OptimizerSpec::Rule::kSgd;
      take_momentum(spec.sgd());
      take_decay(spec.sgd());
      break;
  }
  optimizer.clip_norm = spec.clip_norm();
  optimizer.ema_decay = spec.ema_decay();
  return optimizer;
}

engine::Schedule MakeSchedule(const v1::JobSpec& spec, int64_t steps_per_epoch,
                              int64_t total_steps) {
  const auto steps = [steps_per_epoch](double epochs) {
    return static_cast<int64_t>(std::llround(epochs * static_cast<double>(steps_per_epoch)));
  };
  const v1::ScheduleSpec& shape = spec.schedule();
  const double scale =
      engine::LinearScale(spec.train().global_batch(), spec.optimizer().lr_base_batch());
  engine::Schedule schedule;
  schedule.base_lr = scale * BaseRate(spec.optimizer());
  schedule.total_steps = total_steps;
  schedule.warmup_steps =
      shape.has_warmup_steps() ? shape.warmup_steps() : steps(shape.warmup_epochs());
  switch (shape.shape_case()) {
    case v1::ScheduleSpec::kConstant:
    case v1::ScheduleSpec::SHAPE_NOT_SET:
      schedule.kind = engine::Schedule::Kind::kConstant;
      break;
    case v1::ScheduleSpec::kStep:
      schedule.kind = engine::Schedule::Kind::kStep;
      schedule.gamma = shape.step().gamma();
      for (const double epoch : shape.step().milestones()) {
        schedule.milestones.push_back(steps(epoch));
      }
      break;
    case v1::ScheduleSpec::kCosine:
      schedule.kind = engine::Schedule::Kind::kCosine;
      schedule.final_lr = scale * shape.cosine().final_lr();
      break;
    case v1::ScheduleSpec::kPolynomial:
      schedule.kind = engine::Schedule::Kind::kPolynomial;
      schedule.final_lr = scale * shape.polynomial().final_lr();
      schedule.power = shape.polynomial().power();
      break;
  }
  return schedule;
}

int ReplicaCount(const v1::TrainSpec& spec, int world_size) {
  return spec.replicas() > 0 ? spec.replicas() : world_size;
}

bool DividesSlots(const v1::JobSpec& spec, absl::string_view backend, int ranks) {
  return spec.memory().shard_optimizer() && backend == kCudaBackend && ranks > 1;
}

// They are the rank's blocks of the buckets, into which the exchange cuts the same gradients.
std::vector<engine::ElementRange> OwnedRanges(const v1::JobSpec& spec, absl::string_view backend,
                                              const engine::Graph& graph, int rank, int ranks) {
  std::vector<engine::ElementRange> owned;
  if (!DividesSlots(spec, backend, ranks)) return owned;
  const std::vector<int64_t> ends = ReadyEnds(graph);
  const int64_t gradient_elements = ends[ends.size() - 2];
  for (const parallel::Bucket& bucket :
       parallel::PlanBuckets(ends, gradient_elements, /*options=*/{})) {
    if (bucket.begin >= gradient_elements) break;
    const parallel::Block block =
        parallel::BlockOf(static_cast<size_t>(bucket.size()), rank, ranks);
    const int64_t begin = bucket.begin + static_cast<int64_t>(block.begin);
    const int64_t end = bucket.begin + static_cast<int64_t>(block.end);
    if (begin < end) owned.push_back({begin, end});
  }
  return owned;
}

absl::StatusOr<PreparedModel> PrepareModel(const v1::JobSpec& spec, const CompileTarget& target) {
  const int replicas = ReplicaCount(spec.train(), target.world_size);
  TY_ASSIGN_OR_RETURN(const parallel::ReplicaRange hosted,
                      parallel::HostedReplicas(replicas, target.rank, target.world_size));
  PreparedModel model;
  TY_ASSIGN_OR_RETURN(model.graph, BuildModel(spec.model()));
  // The loss is the last node.
  model.graph.nodes.back().attributes = engine::LossAttributes{spec.train().label_smoothing()};
  model.optimizer = MakeOptimizer(spec.optimizer());
  TY_ASSIGN_OR_RETURN(model.options, StepOptionsOf(spec, target.backend));
  model.couples_rows = CouplesRows(model.graph);
  const bool is_coupled_alone = model.couples_rows && !spec.train().sync_batch_norm();
  model.computes_replicas_alone = is_coupled_alone || IsBitwise(spec);
  const int64_t batch = spec.train().global_batch();
  const parallel::RowRange first = parallel::ReplicaRows(batch, hosted.begin, replicas);
  const parallel::RowRange last = parallel::ReplicaRows(batch, hosted.end - 1, replicas);
  model.hosted_rows = std::max<int64_t>(1, last.end - first.begin);
  // Kernels may depend on it, and a rank may have to host the largest replica later.
  const int64_t replica_rows = parallel::ReplicaRows(batch, 0, replicas).size();
  int64_t rows =
      std::max<int64_t>(1, model.computes_replicas_alone ? replica_rows : model.hosted_rows);
  const int64_t microbatch = spec.memory().microbatch();
  if (microbatch > 0 && microbatch < rows) {
    if (model.couples_rows) return CoupledMicrobatch(microbatch, rows, batch);
    rows = microbatch;
  }
  model.evaluation_rows = rows;
  model.options.max_rows = rows;
  if (is_coupled_alone && !IsBitwise(spec) && microbatch == 0 && spec.stages().count() <= 1) {
    const int64_t groups = std::clamp<int64_t>(target.replicas_at_once, 1,
                                               std::min<int64_t>(hosted.end - hosted.begin, batch));
    // There is room for this many replicas of the largest size, since hostings change.
    model.options.max_groups = groups;
    model.options.max_rows = std::min(std::max(rows, batch), groups * rows);
  }
  if (spec.stages().count() <= 1) {
    model.options.owned =
        OwnedRanges(spec, target.backend, model.graph, target.rank, target.world_size);
  }
  model.options.threads = target.threads;
  model.options.shares_memory = target.shares_memory;
  if (model.couples_rows && spec.train().sync_batch_norm() && target.sum_statistics) {
    model.options.sum_statistics = target.sum_statistics;
    model.options.statistics_rank = target.rank;
    model.options.statistics_ranks = target.world_size;
  }
  if (IsBitwise(spec)) model.options.sum_slots = SumSlotsNeeded(replicas, target.world_size);
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

absl::StatusOr<CompiledModel> CompileModel(const v1::JobSpec& spec, const CompileTarget& target) {
  TY_ASSIGN_OR_RETURN(PreparedModel prepared, PrepareModel(spec, target));
  prepared.options.choices = target.choices;
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(target.backend));
  CompiledModel model;
  model.precision = prepared.options.precision;
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
