#include "worker/run_dir/training_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/json_fields.h"
#include "worker/run_dir/layers_spec.h"

namespace trainyard::run_dir {
namespace {

// The limits of proto/trainyard/v1/{spec,training}.proto.
constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxClasses = 1'000'000;
constexpr int64_t kMaxEpochs = 1'000'000;
constexpr int64_t kMaxSteps = 1'000'000'000'000;
constexpr int64_t kMaxBatch = 16'777'216;
constexpr int kMaxReplicas = 4096;
constexpr int kMaxDevices = 4096;
constexpr int kMaxStages = 64;
constexpr int64_t kMaxSeed = 9'007'199'254'740'991;
constexpr int64_t kMaxSamples = 10'000'000;
constexpr size_t kMaxLayers = 64;
constexpr int64_t kMaxBlocks = 1000;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxContext = 1'048'576;
constexpr int64_t kMaxVocabulary = 16'777'216;
constexpr int64_t kMaxPad = 256;
constexpr int64_t kMaxSide = 4096;

// A number from `min` to `max`; `max` itself, or `min` itself, may be shut out.
struct Limits {
  double min = 0;
  double max = 0;
  bool min_exclusive = false;
  bool max_exclusive = false;
};

void Number(FieldReader& reader, absl::string_view key, double& value, const Limits& limits) {
  double read = value;
  if (!reader.Double(key, read)) return;
  const bool above = limits.min_exclusive ? read > limits.min : read >= limits.min;
  const bool below = limits.max_exclusive ? read < limits.max : read <= limits.max;
  if (!(above && below)) {  // not a number fails both
    reader.Violate(key, absl::StrCat("is ", read, "; expected a number ",
                                     limits.min_exclusive ? "over " : "from ", limits.min,
                                     limits.max_exclusive ? " and under " : " to ", limits.max));
    return;
  }
  value = read;
}

// Which of `keys` is there. A violation at the object itself where it is none, or more than one.
std::string OneOf(FieldReader& parent, absl::string_view name, const FieldReader& reader,
                  std::initializer_list<const char*> keys, bool required) {
  std::vector<std::string> present;
  for (const char* key : keys) {
    if (reader.Has(key)) present.emplace_back(key);
  }
  if (present.size() > 1 || (present.empty() && required)) {
    parent.Violate(name, absl::StrCat("holds ", present.empty() ? "none" : "more than one", " of ",
                                      absl::StrJoin(keys, ", "), "; expected one"));
  }
  return present.size() == 1 ? present[0] : std::string();
}

// Enumerations are written by their proto name, by what people write, or by number.
template <typename Enum>
void ReadEnum(FieldReader& reader, absl::string_view key, absl::string_view prefix,
              std::initializer_list<std::pair<absl::string_view, Enum>> values, Enum& value) {
  if (!reader.Has(key)) return;
  const Json& raw = reader.Raw(key);
  int64_t number = 0;
  std::string expected;
  for (const auto& [name, candidate] : values) {
    ++number;
    absl::StrAppend(&expected, expected.empty() ? "" : " or ", name);
    const std::string upper = absl::StrCat(prefix, absl::AsciiStrToUpper(name));
    if (raw == std::string(name) || raw == upper || raw == number) {
      value = candidate;
      return;
    }
  }
  reader.Violate(key, absl::StrCat("is ", DumpJson(raw), "; expected ", expected));
}

void ReadStem(FieldReader& reader, ModelSpec::Stem& stem) {
  ReadEnum(reader, "stem", "STEM_",
           {{"imagenet", ModelSpec::Stem::kImagenet}, {"cifar", ModelSpec::Stem::kCifar}}, stem);
}

void ReadDropout(FieldReader& reader, double standard, double& rate) {
  rate = standard;
  Number(reader, "dropout", rate, {.min = 0, .max = 1, .max_exclusive = true});
}

void ReadGpt2(FieldReader& fields, ModelSpec& model) {
  model.kind = ModelSpec::Kind::kGpt2;
  model.width = 768;
  int64_t context = 1024;
  model.vocabulary = 50257;
  fields.Integer("layers", model.layers, 1, kMaxBlocks);
  fields.Integer("heads", model.heads, 1, kMaxHeads);
  fields.Integer("width", model.width, 1, kMaxWidth);
  fields.Integer("context", context, 1, kMaxContext);
  fields.Integer("vocabulary", model.vocabulary, 2, kMaxVocabulary);
  ReadDropout(fields, 0.1, model.dropout);
  model.input = {context};
  model.classes = model.vocabulary;
  if (model.width % model.heads != 0) {
    fields.Violate(
        "heads", absl::StrCat("is ", model.heads, "; expected a divisor of width, ", model.width));
  }
}

void ReadModel(FieldReader& spec, ModelSpec& model) {
  FieldReader reader = spec.Object("model");
  const std::string kind = OneOf(
      spec, "model", reader,
      {"mlp", "convnet", "resnet", "wide_resnet", "alexnet", "vgg", "googlenet", "gpt2", "layers"},
      true);
  if (kind.empty()) return;
  FieldReader fields = reader.Object(kind);
  if (kind == "layers") {
    model.kind = ModelSpec::Kind::kLayers;
    model.classes = ReadLayers(fields, model.stack);
    model.input = model.stack.input;
    model.vocabulary = model.stack.vocabulary;
    return;
  }
  if (kind == "gpt2") return ReadGpt2(fields, model);
  if (kind == "resnet" || kind == "alexnet" || kind == "vgg" || kind == "googlenet") {
    model.input = {3, 224, 224};
    model.classes = 1000;
  } else if (kind == "wide_resnet") {
    model.input = {3, 32, 32};
    model.depth = 28;
  }
  fields.Integers("input", model.input, 1, kMaxWidth);
  if (model.input.size() != 3) {
    fields.Violate("input", absl::StrCat("has ", model.input.size(),
                                         " numbers; expected channels, height, width"));
  }
  fields.Integer("classes", model.classes, 2, kMaxClasses);
  if (kind == "mlp") {
    model.kind = ModelSpec::Kind::kMlp;
    fields.Integers("hidden", model.hidden, 1, kMaxWidth);
    if (model.hidden.size() > kMaxLayers) {
      fields.Violate("hidden", absl::StrCat("has ", model.hidden.size(), " layers; at most ",
                                            kMaxLayers, " are allowed"));
    }
  } else if (kind == "resnet") {
    model.kind = ModelSpec::Kind::kResnet;
    fields.Integer("depth", model.depth, 18, 110);
    ReadStem(fields, model.stem);
    fields.Bool("zero_init_residual", model.zero_init_residual);
  } else if (kind == "wide_resnet") {
    model.kind = ModelSpec::Kind::kWideResnet;
    fields.Integer("depth", model.depth, 10, 1000);
    fields.Integer("width", model.width, 1, 64);
  } else if (kind == "alexnet") {
    model.kind = ModelSpec::Kind::kAlexnet;
    ReadDropout(fields, 0.5, model.dropout);
  } else if (kind == "vgg") {
    model.kind = ModelSpec::Kind::kVgg;
    model.depth = 16;
    fields.Integer("depth", model.depth, 11, 19);
    fields.Bool("batch_norm", model.batch_norm);
    ReadDropout(fields, 0.5, model.dropout);
  } else if (kind == "googlenet") {
    model.kind = ModelSpec::Kind::kGooglenet;
    ReadStem(fields, model.stem);
    ReadDropout(fields, 0.2, model.dropout);
  } else {
    model.kind = ModelSpec::Kind::kConvnet;
    fields.Integers("channels", model.channels, 1, kMaxWidth);
    if (model.channels.size() != 2) {
      fields.Violate("channels",
                     absl::StrCat("has ", model.channels.size(), " numbers; expected 2"));
    }
    fields.Bool("batch_norm", model.batch_norm);
  }
}

void ReadAugment(FieldReader& data, AugmentSpec& augment) {
  FieldReader reader = data.Object("augment");
  OneOf(data, "augment", reader, {"pad_crop", "random_resized_crop"}, /*required=*/false);
  reader.Integer("pad_crop", augment.pad_crop, 0, kMaxPad);
  if (reader.Has("random_resized_crop")) {
    FieldReader crop = reader.Object("random_resized_crop");
    augment.min_area = 0.08;
    augment.max_area = 1;
    Number(crop, "min_area", augment.min_area, {.min = 0, .max = 1, .min_exclusive = true});
    Number(crop, "max_area", augment.max_area, {.min = 0, .max = 1, .min_exclusive = true});
    if (augment.min_area > augment.max_area) {
      crop.Violate("min_area", absl::StrCat("is ", augment.min_area,
                                            "; expected at most max_area, ", augment.max_area));
    }
  }
  reader.Bool("flip", augment.flip);
  FieldReader color = reader.Object("color");
  Number(color, "brightness", augment.brightness, {.min = 0, .max = 1});
  Number(color, "contrast", augment.contrast, {.min = 0, .max = 1});
  Number(color, "saturation", augment.saturation, {.min = 0, .max = 1});
  Number(color, "hue", augment.hue, {.min = 0, .max = 0.5});
  reader.Integer("cutout", augment.cutout, 0, kMaxSide);
}

void ReadData(FieldReader& spec, DataSpec& data) {
  spec.Require("data");
  FieldReader reader = spec.Object("data");
  if (spec.Has("data")) reader.Require("dataset");
  reader.String("dataset", data.dataset);
  ReadEnum(reader, "normalize", "NORMALIZE_",
           {{"dataset", DataSpec::Normalize::kDataset}, {"unit", DataSpec::Normalize::kUnit}},
           data.normalize);
  reader.String("digest", data.digest);
  reader.Integer("train_size", data.train_size, 0, kMaxSamples);
  reader.Integer("test_size", data.test_size, 0, kMaxSamples);
  ReadAugment(reader, data.augment);
  reader.String("path", data.path);
  reader.Integer("image_size", data.image_size, 1, kMaxSide);
  reader.Integer("resize", data.resize, 1, 4 * kMaxSide);
  ReadEnum(reader, "on_corrupt", "ON_CORRUPT_", {{"fail", false}, {"skip", true}},
           data.skip_corrupt);
}

void ReadTrain(FieldReader& spec, TrainSpec& train) {
  FieldReader reader = spec.Object("train");
  OneOf(spec, "train", reader, {"epochs", "steps"}, true);
  reader.Integer("epochs", train.epochs, 1, kMaxEpochs);
  reader.Integer("steps", train.steps, 1, kMaxSteps);
  reader.Integer("global_batch", train.global_batch, 1, kMaxBatch);
  reader.Integer("replicas", train.replicas, 0, kMaxReplicas);
  int64_t seed = 1;
  reader.Integer("seed", seed, 0, kMaxSeed);
  train.seed = static_cast<uint64_t>(seed);
  ReadEnum(reader, "precision", "PRECISION_",
           {{"f32", TrainSpec::Precision::kF32},
            {"bf16", TrainSpec::Precision::kBf16},
            {"tf32", TrainSpec::Precision::kTf32},
            {"f16", TrainSpec::Precision::kF16}},
           train.precision);
  Number(reader, "label_smoothing", train.label_smoothing,
         {.min = 0, .max = 1, .max_exclusive = true});
  ReadEnum(reader, "reproducibility", "REPRODUCIBILITY_",
           {{"statistical", false}, {"bitwise", true}}, train.is_bitwise);
  reader.Bool("sync_batch_norm", train.sync_batch_norm);
}

void ReadStages(FieldReader& spec, StagesSpec& stages) {
  FieldReader reader = spec.Object("stages");
  reader.Strings("cuts", stages.cuts);
  stages.count = static_cast<int>(stages.cuts.size()) + 1;
  reader.Integer("count", stages.count, 1, kMaxStages);
  ReadEnum(reader, "schedule", "PIPELINE_SCHEDULE_",
           {{"1f1b", StagesSpec::Schedule::k1F1B},
            {"gpipe", StagesSpec::Schedule::kGpipe},
            {"sequential", StagesSpec::Schedule::kSequential}},
           stages.schedule);
  reader.Integer("microbatches", stages.microbatches, 0, kMaxReplicas);
}

// What a rule has of its own, and its defaults.
struct RuleFields {
  OptimizerSpec defaults = {};
  bool has_momentum = false;
  bool has_betas = false;
};

RuleFields FieldsOfRule(absl::string_view name) {
  using Rule = OptimizerSpec::Rule;
  if (name == "adamw") {
    return {.defaults = {.rule = Rule::kAdamW, .weight_decay = 0.01}, .has_betas = true};
  }
  if (name == "lars") {
    return {
        .defaults = {.rule = Rule::kLars, .momentum = 0.9, .eps = 0, .decay_bias_and_norm = false},
        .has_momentum = true};
  }
  if (name == "lamb") {
    return {.defaults = {.rule = Rule::kLamb,
                         .weight_decay = 0.01,
                         .eps = 1e-6,
                         .decay_bias_and_norm = false},
            .has_betas = true};
  }
  return {.has_momentum = true};  // sgd
}

void ReadMomentum(FieldReader& reader, absl::string_view rule, OptimizerSpec& optimizer) {
  Number(reader, "momentum", optimizer.momentum, {.min = 0, .max = 1, .max_exclusive = true});
  reader.Bool("nesterov", optimizer.nesterov);
  if (optimizer.nesterov && optimizer.momentum == 0) {
    reader.Violate("nesterov",
                   absl::StrCat("is true without momentum; set optimizer.", rule, ".momentum"));
  }
}

void ReadBetas(FieldReader& reader, OptimizerSpec& optimizer) {
  std::vector<double> betas = {optimizer.beta1, optimizer.beta2};
  reader.Doubles("betas", betas);
  const auto bad = [](double beta) { return !(beta >= 0 && beta < 1); };
  if (betas.size() != 2 || std::any_of(betas.begin(), betas.end(), bad)) {
    reader.Violate("betas", absl::StrCat("is ", DumpJson(reader.Raw("betas")),
                                         "; expected two numbers from 0 to under 1"));
    return;
  }
  optimizer.beta1 = betas[0];
  optimizer.beta2 = betas[1];
}

void ReadOptimizer(FieldReader& spec, OptimizerSpec& optimizer) {
  FieldReader section = spec.Object("optimizer");
  const std::string rule =
      OneOf(spec, "optimizer", section, {"sgd", "adamw", "lars", "lamb"}, true);
  const RuleFields fields = FieldsOfRule(rule);
  optimizer = fields.defaults;
  Number(section, "clip_norm", optimizer.clip_norm, {.min = 0, .max = 1e6});
  Number(section, "ema_decay", optimizer.ema_decay, {.min = 0, .max = 1, .max_exclusive = true});
  section.Integer("lr_base_batch", optimizer.lr_base_batch, 0, kMaxBatch);
  if (rule.empty()) return;
  FieldReader reader = section.Object(rule);
  reader.Require("lr");
  Number(reader, "lr", optimizer.lr, {.min = 0, .max = 1000, .min_exclusive = true});
  if (fields.has_momentum) ReadMomentum(reader, rule, optimizer);
  if (fields.has_betas) ReadBetas(reader, optimizer);
  Number(reader, "weight_decay", optimizer.weight_decay, {.min = 0, .max = 1});
  if (optimizer.rule != OptimizerSpec::Rule::kSgd) {
    Number(reader, "eps", optimizer.eps,
           {.min = 0, .max = 1, .min_exclusive = optimizer.rule != OptimizerSpec::Rule::kLars});
  }
  if (optimizer.rule == OptimizerSpec::Rule::kLars) {
    Number(reader, "trust_coefficient", optimizer.trust_coefficient,
           {.min = 0, .max = 1000, .min_exclusive = true});
  }
  reader.Bool("decay_bias_and_norm", optimizer.decay_bias_and_norm);
}

void ReadSchedule(FieldReader& spec, ScheduleSpec& schedule) {
  FieldReader reader = spec.Object("schedule");
  Number(reader, "warmup_epochs", schedule.warmup_epochs, {.min = 0, .max = 100'000});
  const std::string shape =
      OneOf(spec, "schedule", reader, {"constant", "step", "cosine", "polynomial"},
            /*required=*/false);
  if (shape == "step") {
    schedule.shape = ScheduleSpec::Shape::kStep;
    FieldReader fields = reader.Object("step");
    fields.Require("milestones");
    fields.Doubles("milestones", schedule.milestones);
    Number(fields, "gamma", schedule.gamma, {.min = 0, .max = 1});
    const auto bad = [](double epoch) { return !(epoch >= 0 && epoch <= kMaxEpochs); };
    if (schedule.milestones.size() > kMaxLayers ||
        std::any_of(schedule.milestones.begin(), schedule.milestones.end(), bad) ||
        !std::is_sorted(schedule.milestones.begin(), schedule.milestones.end())) {
      fields.Violate("milestones",
                     absl::StrCat("is ", DumpJson(fields.Raw("milestones")), "; expected at most ",
                                  kMaxLayers, " ascending epochs from 0 to ", kMaxEpochs));
    }
  } else if (shape == "cosine") {
    schedule.shape = ScheduleSpec::Shape::kCosine;
    FieldReader fields = reader.Object("cosine");
    Number(fields, "final_lr", schedule.final_lr, {.min = 0, .max = 1000});
  } else if (shape == "polynomial") {
    schedule.shape = ScheduleSpec::Shape::kPolynomial;
    FieldReader fields = reader.Object("polynomial");
    Number(fields, "power", schedule.power, {.min = 0, .max = 100, .min_exclusive = true});
    Number(fields, "final_lr", schedule.final_lr, {.min = 0, .max = 1000});
  }
}

// `spec.checkpoint.every`, `spec.evaluate.every`.
void ReadEvery(FieldReader& spec, absl::string_view section, IntervalSpec& interval) {
  FieldReader parent = spec.Object(section);
  if (!parent.Has("every")) return;
  FieldReader reader = parent.Object("every");
  IntervalSpec read;
  OneOf(parent, "every", reader, {"epochs", "steps", "time"}, true);
  reader.Integer("epochs", read.epochs, 1, kMaxEpochs);
  reader.Integer("steps", read.steps, 1, kMaxSteps);
  if (reader.Duration("time", read.time) && read.time == absl::ZeroDuration()) {
    reader.Violate("time", "is not a positive duration");
  }
  interval = read;
}

void ReadInit(FieldReader& spec, InitSpec& init) {
  if (!spec.Has("init")) return;
  FieldReader reader = spec.Object("init");
  reader.Require("checkpoint");
  reader.String("checkpoint", init.checkpoint);
  reader.Strings("skip", init.skip);
  reader.String("digest", init.digest);
}

}  // namespace

absl::StatusOr<TrainingSpec> ParseTrainingSpec(absl::string_view spec_json) {
  TY_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(spec_json, "spec"));
  std::vector<FieldViolation> violations;
  FieldReader reader(json, "spec", violations);
  TrainingSpec spec;
  reader.String("name", spec.name);
  ReadModel(reader, spec.model);
  ReadData(reader, spec.data);
  ReadTrain(reader, spec.train);
  ReadOptimizer(reader, spec.optimizer);
  ReadSchedule(reader, spec.schedule);
  FieldReader memory = reader.Object("memory");
  memory.Bool("recompute", spec.memory.recompute);
  memory.Integer("microbatch", spec.memory.microbatch, 0, kMaxBatch);
  memory.Bool("shard_optimizer", spec.memory.shard_optimizer);
  reader.Object("devices").Integer("count", spec.devices, 1, kMaxDevices);
  ReadEvery(reader, "checkpoint", spec.checkpoint_every);
  ReadEvery(reader, "evaluate", spec.evaluate_every);
  ReadInit(reader, spec.init);
  ReadStages(reader, spec.stages);
  if (!violations.empty()) return InvalidFields(std::move(violations));
  return spec;
}

}  // namespace trainyard::run_dir
