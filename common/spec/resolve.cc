// Fills in defaults first, and then makes all checks at once. The rules of single fields are in the
// proto files; the rules between fields are here, in data_checks and in training_checks.
#include "common/spec/resolve.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/spec/data_checks.h"
#include "common/spec/defaults.h"
#include "common/spec/interval.h"
#include "common/spec/network_limits.h"
#include "common/spec/notify_checks.h"
#include "common/spec/program_checks.h"
#include "common/spec/retain.h"
#include "common/spec/rules.h"
#include "common/spec/sweep_checks.h"
#include "common/spec/training_checks.h"

namespace trainyard::spec {
namespace {

constexpr char kPath[] = "spec";

using Violations = std::vector<FieldViolation>;

void CheckReplicas(const v1::JobSpec& spec, Violations& violations) {
  const int32_t replicas = spec.train().replicas();
  const int32_t stages = std::max(1, spec.stages().count());
  // All devices of a pipeline compute the same replicas.
  const int32_t devices = spec.devices().count() / stages;
  if (replicas < devices) {
    violations.push_back(
        {"spec.train.replicas",
         absl::StrCat(replicas, replicas == 1 ? " replica keeps " : " replicas keep ",
                      "only as many devices busy, and devices.count is ", devices,
                      "; use at least ", devices,
                      " replicas (a different number of replicas is a "
                      "different computation), or fewer devices")});
  }
  if (spec.train().global_batch() < replicas) {
    violations.push_back(
        {"spec.train.global_batch",
         absl::StrCat(spec.train().global_batch(), " samples cannot be shared by ", replicas,
                      " replicas; use ", replicas, " or more, or fewer replicas")});
  }
}

// Returns true if batch norm makes the samples of a replica depend on each other.
bool HasBatchNorm(const v1::ModelSpec& model) {
  return model.has_resnet() || model.has_wide_resnet() || model.has_googlenet() ||
         model.convnet().batch_norm() || model.vgg().batch_norm();
}

void CheckMicrobatch(const v1::JobSpec& spec, Violations& violations) {
  const int64_t microbatch = spec.memory().microbatch();
  const int64_t replicas = std::max<int64_t>(1, spec.train().replicas());
  const int64_t batch = spec.train().global_batch();
  const int64_t rows = (batch + replicas - 1) / replicas;
  if (microbatch <= 0 || microbatch >= rows || !HasBatchNorm(spec.model())) return;
  violations.push_back(
      {"spec.memory.microbatch",
       absl::StrCat(microbatch, " is less than the ", rows,
                    " samples of a replica, and batch normalisation needs them all at once; set "
                    "train.replicas to ",
                    (batch + microbatch - 1) / microbatch,
                    " (other statistics, so a different computation), or use memory.recompute")});
}

void CheckReproducibility(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.train().sync_batch_norm()) return;
  if (spec.train().reproducibility() == v1::REPRODUCIBILITY_BITWISE) {
    violations.push_back(
        {"spec.train.sync_batch_norm",
         "cannot stand beside reproducibility: bitwise, which computes each replica by itself; use "
         "statistical, or leave it out"});
  }
  if (spec.stages().count() > 1) {
    violations.push_back({"spec.train.sync_batch_norm",
                          "cannot stand beside stages, whose microbatches are computed one after "
                          "the other; leave one of them out"});
  }
}

void CheckExchangePrecision(const v1::JobSpec& spec, Violations& violations) {
  const v1::Precision precision = spec.train().exchange_precision();
  if (precision == v1::PRECISION_F32) return;
  constexpr char kField[] = "spec.train.exchange_precision";
  if (precision != v1::PRECISION_BF16) {
    violations.push_back(
        {kField, "is no type in which gradients can travel; expected f32 or bf16"});
    return;
  }
  const char* other = spec.train().reproducibility() == v1::REPRODUCIBILITY_BITWISE
                          ? "reproducibility: bitwise"
                      : spec.memory().shard_optimizer() ? "memory.shard_optimizer"
                                                        : nullptr;
  if (other == nullptr) return;
  violations.push_back(
      {kField, absl::StrCat("bf16 cannot stand beside ", other,
                            ", which adds up gradients in f32 in an order of its own; use f32")});
}

void CheckShardedOptimizer(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.memory().shard_optimizer()) return;
  const v1::OptimizerSpec& optimizer = spec.optimizer();
  const char* rule = optimizer.has_lars()        ? "lars"
                     : optimizer.has_lamb()      ? "lamb"
                     : optimizer.clip_norm() > 0 ? "clip_norm"
                                                 : nullptr;
  if (rule == nullptr) return;
  violations.push_back({"spec.memory.shard_optimizer",
                        absl::StrCat("cannot stand beside optimizer.", rule,
                                     ", which needs the norm of whole gradients on each device; "
                                     "leave one of them out")});
}

// This comes before the defaults, because cuts determine the number of stages.
void TakeCuts(v1::JobSpec& resolved) {
  if (!resolved.has_stages() || resolved.stages().has_count()) return;
  if (resolved.stages().cuts_size() == 0) return;
  resolved.mutable_stages()->set_count(resolved.stages().cuts_size() + 1);
}

void CheckStages(const v1::JobSpec& spec, Violations& violations) {
  const v1::StagesSpec& stages = spec.stages();
  const int32_t count = stages.count();
  const int32_t devices = spec.devices().count();
  if (count <= 1) return;
  if (stages.cuts_size() > 0 && stages.cuts_size() != count - 1) {
    violations.push_back(
        {"spec.stages.cuts", absl::StrCat(stages.cuts_size(), " cuts make ", stages.cuts_size() + 1,
                                          " stages, and stages.count is ", count, "; use ",
                                          count - 1, " cuts, or leave one of the two out")});
  }
  const int64_t most = MostStages(spec.model());
  if (most > 0 && count > most) {
    violations.push_back(
        {stages.cuts_size() > 0 ? "spec.stages.cuts" : "spec.stages.count",
         absl::StrCat(count, " stages are too many for this model, which can be cut in ", most - 1,
                      most == 2 ? " place" : " places", "; expected ", most, " stages or fewer")});
  }
  if (devices % count != 0) {
    const int32_t fewer = devices / count * count;
    violations.push_back(
        {"spec.devices.count",
         absl::StrCat(devices, " devices cannot hold ", count, " stages evenly; use ",
                      fewer > 0 ? absl::StrCat(fewer, " or ") : "", fewer + count)});
  }
  if (spec.devices().has_min()) {
    violations.push_back({"spec.devices.min",
                          "an elastic job cannot have stages; use devices.count, or leave out "
                          "stages"});
  }
  if (spec.optimizer().clip_norm() > 0) {
    violations.push_back({"spec.optimizer.clip_norm",
                          "cannot stand beside stages: it takes the norm of all gradients, and a "
                          "stage has only its own; leave one of them out"});
  }
  if (spec.train().precision() == v1::PRECISION_F16) {
    violations.push_back({"spec.train.precision",
                          "f16 cannot stand beside stages: its loss scale follows all gradients, "
                          "and a stage has only its own; use bf16, or leave stages out"});
  }
  const int32_t microbatches = stages.microbatches();
  if (microbatches <= 0) return;
  if (stages.schedule() == v1::PIPELINE_SCHEDULE_SEQUENTIAL && microbatches > 1) {
    violations.push_back(
        {"spec.stages.microbatches", absl::StrCat(microbatches,
                                                  " and schedule: sequential, which is one "
                                                  "microbatch; use gpipe or 1f1b")});
  }
  if (HasBatchNorm(spec.model())) {
    violations.push_back({"spec.stages.microbatches",
                          "with batch normalisation each microbatch is a replica; set "
                          "train.replicas instead"});
  }
}

void CheckWarmup(const v1::JobSpec& spec, Violations& violations) {
  const v1::TrainSpec& train = spec.train();
  const v1::ScheduleSpec& schedule = spec.schedule();
  const auto per_epoch = static_cast<double>(StepsPerEpoch(spec));
  const auto check = [&](const char* unit, double warmup, double length) {
    if (length <= 0 || warmup <= 0 || warmup < length) return;
    violations.push_back({absl::StrCat("spec.schedule.warmup_", unit),
                          absl::StrCat(warmup, " is not shorter than the training of ", length, " ",
                                       unit, "; use less")});
  };
  if (schedule.has_warmup_steps()) {
    check("steps", static_cast<double>(schedule.warmup_steps()),
          train.has_steps() ? static_cast<double>(train.steps())
                            : static_cast<double>(train.epochs()) * per_epoch);
  } else if (train.has_epochs()) {
    check("epochs", schedule.warmup_epochs(), static_cast<double>(train.epochs()));
  } else if (per_epoch > 0) {
    check("epochs", schedule.warmup_epochs(), static_cast<double>(train.steps()) / per_epoch);
  }
}

// This comes before the defaults, because an elastic job may give only `max` and not a count.
void TakeElastic(v1::JobSpec& resolved) {
  v1::DevicesSpec& devices = *resolved.mutable_devices();
  if (!devices.has_max()) return;
  if (!devices.has_count()) devices.set_count(devices.max());
  devices.clear_max();
}

void CheckDevices(const v1::JobSpec& spec, const v1::JobSpec& resolved, Violations& violations) {
  const v1::DevicesSpec& devices = spec.devices();
  const bool is_deviceless = resolved.devices().has_count() && resolved.devices().count() == 0;
  if (is_deviceless && !spec.has_program()) {
    violations.push_back({"spec.devices.count",
                          "0 devices are for a program alone, and this spec has a model; use at "
                          "least 1"});
  } else if (is_deviceless && (!devices.type().empty() || devices.has_memory())) {
    violations.push_back({"spec.devices.count",
                          "is 0, so that devices.type and devices.memory say nothing; leave them "
                          "out (resources.memory is the memory of the host)"});
  } else if (devices.has_max() && devices.has_count()) {
    violations.push_back(
        {"spec.devices.max",
         absl::StrCat("cannot stand beside devices.count, which is ", devices.count(),
                      "; write {min: ", devices.min(), ", max: ", devices.max(),
                      "} for an elastic job, or count "
                      "alone")});
  } else if (devices.has_max() && !devices.has_min()) {
    violations.push_back({"spec.devices.max",
                          absl::StrCat("needs devices.min, such as {min: 1, max: ", devices.max(),
                                       "}; or write count: ", devices.max())});
  } else if (devices.has_min() && devices.min() > resolved.devices().count()) {
    violations.push_back(
        {"spec.devices.min",
         absl::StrCat(devices.min(), " is more than the ", resolved.devices().count(),
                      " devices that the job asks for at most; set devices.max, or less")});
  }
}

// Processor time is counted in hundredths of a second.
constexpr absl::Duration kIdleLimitMin = absl::Seconds(2);

void CheckTimes(const v1::JobSpec& spec, Violations& violations) {
  const auto check = [&](bool is_set, const google::protobuf::Duration& time, const char* path) {
    if (!is_set || FromProto(time) > absl::ZeroDuration()) return;
    violations.push_back({path, "0 is not accepted; expected more, such as '10 min'"});
  };
  if (spec.has_time_limit_warning()) {
    const absl::Duration warning = FromProto(spec.time_limit_warning());
    if (!spec.has_time_limit()) {
      violations.push_back({"spec.time_limit_warning", "needs a time_limit to warn of"});
    } else if (warning >= FromProto(spec.time_limit())) {
      violations.push_back(
          {"spec.time_limit_warning",
           absl::StrCat(PlainDurationText(warning), " is not less than time_limit, which is ",
                        PlainDurationText(FromProto(spec.time_limit())))});
    }
  }
  check(spec.has_time_limit_warning(), spec.time_limit_warning(), "spec.time_limit_warning");
  check(spec.has_time_limit(), spec.time_limit(), "spec.time_limit");
  if (spec.has_idle_limit() && !spec.has_program()) {
    violations.push_back({"spec.idle_limit",
                          "is for programs; a training always computes, and ends with its steps"});
  } else if (spec.has_idle_limit() && FromProto(spec.idle_limit()) < kIdleLimitMin) {
    violations.push_back(
        {"spec.idle_limit", absl::StrCat(PlainDurationText(FromProto(spec.idle_limit())),
                                         " is too short to tell; expected at least 2 s")});
  }
  if (spec.retain().empty()) return;
  if (const auto retain = ParseRetain(spec.retain()); !retain.ok()) {
    violations.push_back({"spec.retain", std::string(retain.status().message())});
  }
}

// Adds those of `between` that say something new. If a field breaks its own rule, that violation is
// enough.
void AddUnknown(Violations between, Violations& violations) {
  for (FieldViolation& violation : between) {
    const bool is_known =
        std::any_of(violations.begin(), violations.end(), [&](const FieldViolation& known) {
          return absl::StartsWith(known.field, violation.field);
        });
    if (!is_known) violations.push_back(std::move(violation));
  }
}

}  // namespace

int64_t StepsPerEpoch(const v1::JobSpec& spec) {
  const int64_t samples = TrainSplitSize(spec);
  const int64_t batch = spec.train().global_batch();
  return batch <= 0 ? 0 : (samples + batch - 1) / batch;
}

std::vector<FieldViolation> ResolveInto(const v1::JobSpec& spec, v1::JobSpec& resolved) {
  // Servers until 0.1.0 wrote this into clones of programs that have no data.
  if (spec.has_program() && spec.has_data() && spec.data().ByteSizeLong() == 0) {
    v1::JobSpec without = spec;
    without.clear_data();
    return ResolveInto(without, resolved);
  }
  Violations violations = ValidateRules(spec, kPath);
  resolved = spec;
  TakeElastic(resolved);
  TakeCuts(resolved);
  FillDefaults(resolved);
  ClearModelDefaults(resolved);
  if (resolved.has_train() && resolved.train().replicas() == 0) {
    const int32_t pipelines = resolved.devices().count() / std::max(1, resolved.stages().count());
    resolved.mutable_train()->set_replicas(std::max(1, pipelines));
  }
  Violations between;
  if (resolved.has_train()) {
    CheckReplicas(resolved, between);
    CheckMicrobatch(resolved, between);
    CheckReproducibility(resolved, between);
    CheckData(resolved, between);
    CheckWarmup(resolved, between);
    CheckShardedOptimizer(resolved, between);
    CheckExchangePrecision(resolved, between);
  }
  if (resolved.has_program()) {
    CheckProgram(spec, between);
  } else {
    CheckTraining(resolved, between);
  }
  CheckNotify(spec, between);
  CheckDevices(spec, resolved, between);
  CheckStages(resolved, between);
  CheckTimes(resolved, between);
  CheckSweep(resolved, between);
  AddUnknown(std::move(between), violations);
  return violations;
}

absl::StatusOr<v1::JobSpec> ResolveForTrainer(const v1::JobSpec& spec) {
  Violations violations = ValidateRules(spec, kPath);
  // The name does not affect what is computed, and an array may have made it longer than the rules
  // allow.
  std::erase_if(violations, [](const FieldViolation& violation) {
    return violation.field == absl::StrCat(kPath, ".name");
  });
  v1::JobSpec resolved = spec;
  TakeElastic(resolved);
  TakeCuts(resolved);
  FillDefaults(resolved);
  Violations between;
  CheckTraining(resolved, between);
  if (spec.has_program()) {
    between.push_back({"spec.program", "is no model, and a trainer trains models alone"});
  }
  AddUnknown(std::move(between), violations);
  if (!violations.empty()) return InvalidFields(violations);
  return resolved;
}

absl::StatusOr<v1::JobSpec> ResolveSpec(const v1::JobSpec& spec) {
  v1::JobSpec resolved;
  std::vector<FieldViolation> violations = ResolveInto(spec, resolved);
  if (!violations.empty()) return InvalidFields(violations);
  return resolved;
}

}  // namespace trainyard::spec
