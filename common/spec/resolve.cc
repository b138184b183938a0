#include "common/spec/resolve.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/layers/plan.h"
#include "common/spec/defaults.h"
#include "common/spec/fields.h"
#include "common/spec/interval.h"
#include "common/spec/layers.h"
#include "common/spec/rules.h"
#include "common/spec/tokens.h"

namespace trainyard::spec {
namespace {

// What is known of the data sets; docs of the data folder tell where the numbers come from.
struct DatasetFacts {
  absl::string_view name;
  int64_t train_size;
  int64_t classes;
  int64_t channels, height, width;
  bool is_generated;
};
constexpr DatasetFacts kDatasets[] = {{"glyphs", 20'000, 10, 1, 28, 28, true},
                                      {"mnist", 60'000, 10, 1, 28, 28, false},
                                      {"fashion-mnist", 60'000, 10, 1, 28, 28, false},
                                      {"cifar10", 50'000, 10, 3, 32, 32, false},
                                      {"cifar100", 50'000, 100, 3, 32, 32, false}};

const DatasetFacts* FindDataset(absl::string_view name) {
  for (const DatasetFacts& facts : kDatasets) {
    if (facts.name == name) return &facts;
  }
  return nullptr;
}

using Violations = std::vector<FieldViolation>;

// Input of the model against the data set.
template <typename Model>
void CheckInput(const Model& model, const std::string& path, const DatasetFacts& facts,
                Violations& violations) {
  const std::vector<int64_t> shape = {facts.channels, facts.height, facts.width};
  if (!std::equal(model.input().begin(), model.input().end(), shape.begin(), shape.end())) {
    violations.push_back(
        {path + ".input",
         absl::StrCat("[", absl::StrJoin(model.input(), ", "), "] does not fit data set '",
                      facts.name, "'; expected [", absl::StrJoin(shape, ", "), "]")});
  }
}

// Input and classes.
template <typename Model>
void CheckModel(const Model& model, const std::string& path, const DatasetFacts& facts,
                Violations& violations) {
  CheckInput(model, path, facts, violations);
  if (model.classes() < facts.classes) {
    violations.push_back(
        {path + ".classes", absl::StrCat(model.classes(), " is too few for data set '", facts.name,
                                         "'; expected ", facts.classes, " or more")});
  }
}

// What only the data set `images` takes (tokens have a path too), and what it needs.
void CheckImages(const v1::JobSpec& spec, Violations& violations) {
  const v1::DataSpec& data = spec.data();
  const bool is_images = data.dataset() == "images";
  const auto refuse = [&](bool is_set, const char* field) {
    if (!is_set || is_images) return;
    violations.push_back({absl::StrCat("spec.data.", field),
                          absl::StrCat("has no meaning for data set '", data.dataset(),
                                       "'; only images have it: leave it out")});
  };
  refuse(data.has_path() && data.dataset() != "tokens", "path");
  refuse(data.has_image_size(), "image_size");
  refuse(data.has_resize(), "resize");
  refuse(data.on_corrupt() != v1::ON_CORRUPT_UNSPECIFIED, "on_corrupt");
  if (!is_images) return;
  const int64_t side = data.has_image_size() ? data.image_size() : 224;
  if (data.path().empty()) {
    violations.push_back(
        {"spec.data.path", "must be given for images; write their folder, such as 'flowers'"});
  }
  if (data.has_resize() && data.resize() < side) {
    violations.push_back({"spec.data.resize", absl::StrCat(data.resize(), " is less than ", side,
                                                           ", the side of a sample")});
  }
  const auto check = [&](const auto& model, const char* path) {
    const std::vector<int64_t> shape = {3, side, side};
    if (std::equal(model.input().begin(), model.input().end(), shape.begin(), shape.end())) return;
    violations.push_back({path, absl::StrCat("[", absl::StrJoin(model.input(), ", "),
                                             "] does not fit the images; expected [",
                                             absl::StrJoin(shape, ", "), "]")});
  };
  if (spec.model().has_mlp()) check(spec.model().mlp(), "spec.model.mlp.input");
  if (spec.model().has_convnet()) check(spec.model().convnet(), "spec.model.convnet.input");
  if (spec.model().has_layers()) check(spec.model().layers(), "spec.model.layers.input");
}

// How the layers fit together, and their two ends to the data.
void CheckLayers(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.model().has_layers()) return;
  const v1::LayersModel& model = spec.model().layers();
  const std::string path = "spec.model.layers";
  const layers::StackPlan plan = layers::PlanStack(ToStack(model), path, violations);
  const DatasetFacts* facts = FindDataset(spec.data().dataset());
  if (facts == nullptr) return;
  if (model.vocabulary() > 0) return;  // see CheckTokens
  CheckInput(model, path, *facts, violations);
  if (plan.classes == 0 || plan.classes >= facts->classes) return;
  violations.push_back(
      {absl::StrCat(path, ".stack[", model.stack_size() - 1, "]"),
       absl::StrCat("ends the stack with ", plan.classes, " classes, too few for data set '",
                    facts->name, "'; expected ", facts->classes, " or more")});
}

void CheckData(const v1::JobSpec& spec, Violations& violations) {
  CheckImages(spec, violations);
  CheckTokens(spec, violations);
  const DatasetFacts* facts = FindDataset(spec.data().dataset());
  if (facts == nullptr) return;
  const v1::ModelSpec& model = spec.model();
  switch (model.model_case()) {
    case v1::ModelSpec::kMlp:
      CheckModel(model.mlp(), "spec.model.mlp", *facts, violations);
      break;
    case v1::ModelSpec::kConvnet:
      CheckModel(model.convnet(), "spec.model.convnet", *facts, violations);
      break;
    case v1::ModelSpec::kResnet:
      CheckModel(model.resnet(), "spec.model.resnet", *facts, violations);
      break;
    case v1::ModelSpec::kWideResnet:
      CheckModel(model.wide_resnet(), "spec.model.wide_resnet", *facts, violations);
      break;
    case v1::ModelSpec::kAlexnet:
      CheckModel(model.alexnet(), "spec.model.alexnet", *facts, violations);
      break;
    case v1::ModelSpec::kVgg:
      CheckModel(model.vgg(), "spec.model.vgg", *facts, violations);
      break;
    case v1::ModelSpec::kGooglenet:
      CheckModel(model.googlenet(), "spec.model.googlenet", *facts, violations);
      break;
    case v1::ModelSpec::kGpt2:
    case v1::ModelSpec::kLayers:
    case v1::ModelSpec::MODEL_NOT_SET:
      break;
  }
  const auto check_size = [&](const char* field, int64_t size) {
    if (size == 0 || facts->is_generated) return;
    violations.push_back({absl::StrCat("spec.data.", field),
                          absl::StrCat(size, " has no meaning for data set '", facts->name,
                                       "'; only glyphs are generated: leave it out")});
  };
  check_size("train_size", spec.data().train_size());
  check_size("test_size", spec.data().test_size());
  const int64_t samples = TrainSplitSize(spec);
  if (spec.train().global_batch() > samples) {
    violations.push_back({"spec.train.global_batch",
                          absl::StrCat(spec.train().global_batch(), " is more than the ", samples,
                                       " training samples of data set '", facts->name, "'")});
  }
}

void CheckAugment(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.data().augment().has_random_resized_crop()) return;
  const v1::RandomResizedCrop& crop = spec.data().augment().random_resized_crop();
  // What the trainer takes where they are left out.
  const double min_area = crop.has_min_area() ? crop.min_area() : 0.08;
  const double max_area = crop.has_max_area() ? crop.max_area() : 1;
  if (min_area <= max_area) return;
  violations.push_back(
      {"spec.data.augment.random_resized_crop.min_area",
       absl::StrCat(min_area, " is more than max_area, which is ", max_area, "; use less")});
}

void CheckReplicas(const v1::JobSpec& spec, Violations& violations) {
  const int32_t replicas = spec.train().replicas();
  const int32_t stages = std::max(1, spec.stages().count());
  // Of a pipeline all devices compute the same replicas.
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

// Whether batch norm makes the samples of a replica depend on each other.
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

// Before defaults: cuts tell the number of stages.
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

void CheckOptimizer(const v1::JobSpec& spec, Violations& violations) {
  const auto check_nesterov = [&violations](const char* rule, bool nesterov, double momentum) {
    if (!nesterov || momentum > 0) return;
    violations.push_back(
        {absl::StrCat("spec.optimizer.", rule, ".nesterov"),
         absl::StrCat("needs momentum; set optimizer.", rule, ".momentum above 0, such as 0.9")});
  };
  const v1::OptimizerSpec& optimizer = spec.optimizer();
  check_nesterov("sgd", optimizer.sgd().nesterov(), optimizer.sgd().momentum());
  check_nesterov("lars", optimizer.lars().nesterov(), optimizer.lars().momentum());
}

// Length of the training in epochs; 0 where it is unknown.
double TrainEpochs(const v1::JobSpec& spec) {
  if (spec.train().has_epochs()) return static_cast<double>(spec.train().epochs());
  const int64_t samples = TrainSplitSize(spec);
  const int64_t batch = spec.train().global_batch();
  if (!spec.train().has_steps() || samples <= 0 || batch <= 0) return 0;
  const int64_t steps_per_epoch = (samples + batch - 1) / batch;
  return static_cast<double>(spec.train().steps()) / static_cast<double>(steps_per_epoch);
}

void CheckSchedule(const v1::JobSpec& spec, Violations& violations) {
  const double epochs = TrainEpochs(spec);
  const double warmup = spec.schedule().warmup_epochs();
  if (epochs > 0 && warmup > 0 && warmup >= epochs) {
    violations.push_back({"spec.schedule.warmup_epochs",
                          absl::StrCat(warmup, " is not shorter than the training of ", epochs,
                                       " epochs; use less")});
  }
  const auto& milestones = spec.schedule().step().milestones();
  for (int i = 1; i < milestones.size(); ++i) {
    if (milestones[i] > milestones[i - 1]) continue;
    violations.push_back({absl::StrCat("spec.schedule.step.milestones[", i, "]"),
                          absl::StrCat(milestones[i], " does not come after ", milestones[i - 1],
                                       "; expected ascending epochs")});
  }
}

void CheckInit(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.has_init()) return;
  const std::vector<absl::string_view> parts = absl::StrSplit(spec.init().checkpoint(), '/');
  if (std::find(parts.begin(), parts.end(), "..") != parts.end()) {
    violations.push_back({"spec.init.checkpoint",
                          absl::StrCat("'", spec.init().checkpoint(),
                                       "' leads out of the folder of data sets; leave out '..'")});
  }
  for (int i = 0; i < spec.init().skip_size(); ++i) {
    if (!spec.init().skip(i).empty()) continue;
    violations.push_back({absl::StrCat("spec.init.skip[", i, "]"),
                          "is empty, which begins every name; write a prefix such as 'fc.'"});
  }
}

// Before defaults: `max` is what an elastic job calls its count.
void TakeElastic(v1::JobSpec& resolved) {
  v1::DevicesSpec& devices = *resolved.mutable_devices();
  if (!devices.has_max()) return;
  if (!devices.has_count()) devices.set_count(devices.max());
  devices.clear_max();
}

void CheckDevices(const v1::JobSpec& spec, const v1::JobSpec& resolved, Violations& violations) {
  const v1::DevicesSpec& devices = spec.devices();
  if (devices.has_max() && devices.has_count()) {
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
  } else if (devices.min() > resolved.devices().count()) {
    violations.push_back(
        {"spec.devices.min",
         absl::StrCat(devices.min(), " is more than the ", resolved.devices().count(),
                      " devices that the job asks for at most; set devices.max, or less")});
  }
}

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
  check(spec.checkpoint().every().has_time(), spec.checkpoint().every().time(),
        "spec.checkpoint.every.time");
  check(spec.evaluate().every().has_time(), spec.evaluate().every().time(),
        "spec.evaluate.every.time");
}

}  // namespace

int64_t TrainSplitSize(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  if (HasTokens(data.dataset())) return TokenSamples(spec);
  const DatasetFacts* facts = FindDataset(data.dataset());
  if (facts == nullptr) return 0;
  return facts->is_generated && data.train_size() > 0 ? data.train_size() : facts->train_size;
}

std::vector<FieldViolation> ResolveInto(const v1::JobSpec& spec, v1::JobSpec& resolved) {
  Violations violations = ValidateRules(spec, "spec");
  resolved = spec;
  TakeElastic(resolved);
  TakeCuts(resolved);
  FillDefaults(resolved);
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
    CheckSchedule(resolved, between);
  }
  CheckLayers(resolved, between);
  CheckInit(resolved, between);
  CheckDevices(spec, resolved, between);
  CheckOptimizer(resolved, between);
  CheckShardedOptimizer(resolved, between);
  CheckStages(resolved, between);
  CheckAugment(resolved, between);
  CheckTimes(resolved, between);
  // A field that breaks its own rule says enough.
  for (FieldViolation& violation : between) {
    const bool is_known =
        std::any_of(violations.begin(), violations.end(), [&](const FieldViolation& known) {
          return absl::StartsWith(known.field, violation.field);
        });
    if (!is_known) violations.push_back(std::move(violation));
  }
  return violations;
}

absl::StatusOr<v1::JobSpec> ResolveSpec(const v1::JobSpec& spec) {
  v1::JobSpec resolved;
  std::vector<FieldViolation> violations = ResolveInto(spec, resolved);
  if (!violations.empty()) return InvalidFields(std::move(violations));
  return resolved;
}

}  // namespace trainyard::spec
