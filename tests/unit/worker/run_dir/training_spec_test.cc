#include "worker/run_dir/training_spec.h"

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/run_dir/test_support.h"
#include "worker/run_dir/assignment.h"

namespace trainyard::run_dir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kMinimal[] = R"({
  "model": {"mlp": {}}, "data": {"dataset": "glyphs"}, "train": {"epochs": 1},
  "optimizer": {"sgd": {"lr": 0.1}}})";

std::vector<std::string> ViolatedFields(const std::string& text) {
  const auto spec = ParseTrainingSpec(text);
  std::vector<std::string> fields;
  for (const FieldViolation& violation : GetFieldViolations(spec.status())) {
    fields.push_back(violation.field);
  }
  return fields;
}

TEST(TrainingSpec, ReadsProtoJsonWithIntegersAsStrings) {
  const auto assignment = DecodeAssignment(GoldenText("assignment.json"), "assignment.json");
  ASSERT_TRUE(assignment.ok());
  const auto spec = ParseTrainingSpec(assignment->spec_json);
  ASSERT_TRUE(spec.ok()) << spec.status();
  TrainingSpec expected;
  expected.name = "convnet-glyphs";
  expected.model = {.kind = ModelSpec::Kind::kConvnet, .batch_norm = true};
  expected.data = {.dataset = "glyphs", .train_size = 2000, .test_size = 500};
  expected.train = {.epochs = 3, .global_batch = 64, .replicas = 2, .seed = 1};
  expected.optimizer = {.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.0005};
  expected.schedule = {.shape = ScheduleSpec::Shape::kStep,
                       .warmup_epochs = 0.5,
                       .milestones = {1, 2.5},
                       .gamma = 0.2};
  expected.checkpoint_every = {.steps = 100};
  expected.evaluate_every = {.time = absl::Seconds(90)};
  EXPECT_EQ(*spec, expected);
}

TEST(TrainingSpec, DefaultsAreThoseOfTheProto) {
  const auto spec = ParseTrainingSpec(kMinimal);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train.global_batch, 64);
  EXPECT_EQ(spec->train.seed, 1U);
  EXPECT_EQ(spec->train.replicas, 0);
  EXPECT_EQ(spec->checkpoint_every, IntervalSpec{.epochs = 1});
  EXPECT_EQ(spec->evaluate_every, IntervalSpec{.epochs = 1});
  EXPECT_THAT(spec->model.hidden, ElementsAre(256));
}

std::string WithPrecision(const std::string& precision) {
  return R"({"model": {"mlp": {}}, "data": {"dataset": "glyphs"},
      "train": {"epochs": 1, "precision": )" +
         precision + R"(}, "optimizer": {"sgd": {"lr": 0.1}}})";
}

TEST(TrainingSpec, ReadsThePrecision) {
  EXPECT_EQ(ParseTrainingSpec(kMinimal)->train.precision, TrainSpec::Precision::kF32);
  using Precision = TrainSpec::Precision;
  for (const auto& [text, precision] :
       {std::pair(R"("bf16")", Precision::kBf16),
        std::pair(R"("PRECISION_BF16")", Precision::kBf16), std::pair("2", Precision::kBf16),
        std::pair(R"("tf32")", Precision::kTf32),
        std::pair(R"("PRECISION_TF32")", Precision::kTf32), std::pair("3", Precision::kTf32),
        std::pair(R"("f16")", Precision::kF16), std::pair(R"("PRECISION_F16")", Precision::kF16),
        std::pair("4", Precision::kF16)}) {
    const auto spec = ParseTrainingSpec(WithPrecision(text));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->train.precision, precision) << text;
  }
  EXPECT_THAT(std::string(ParseTrainingSpec(WithPrecision(R"("fp8")")).status().message()),
              HasSubstr("expected f32 or bf16 or tf32 or f16"));
}

std::string WithData(const std::string& members) {
  return R"({"model": {"mlp": {}}, "data": {"dataset": "cifar10", )" + members +
         R"(}, "train": {"epochs": 1}, "optimizer": {"sgd": {"lr": 0.1}}})";
}

TEST(TrainingSpec, ReadsAugmentation) {
  auto spec = ParseTrainingSpec(WithData(R"("augment": {"pad_crop": "4", "flip": true,
      "color": {"contrast": 0.4}, "cutout": 16})"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.augment,
            (AugmentSpec{.pad_crop = 4, .flip = true, .contrast = 0.4, .cutout = 16}));
  spec = ParseTrainingSpec(WithData(R"("augment": {"random_resized_crop": {"max_area": 0.5}})"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.augment, (AugmentSpec{.min_area = 0.08, .max_area = 0.5}));
}

TEST(TrainingSpec, RefusesAugmentationOutOfRange) {
  EXPECT_THAT(ViolatedFields(WithData(R"("augment": {"pad_crop": 4, "random_resized_crop": {},
                  "flip": 1, "color": {"brightness": 1.5}, "cutout": -1})")),
              ElementsAre("spec.data.augment", "spec.data.augment.flip",
                          "spec.data.augment.color.brightness", "spec.data.augment.cutout"));
  EXPECT_THAT(ViolatedFields(WithData(R"("augment": {"random_resized_crop": {"max_area": 0.01}})")),
              ElementsAre("spec.data.augment.random_resized_crop.min_area"));
}

TEST(TrainingSpec, ReadsWhereImagesLie) {
  const auto spec = ParseTrainingSpec(WithData(
      R"("path": "flowers", "image_size": "64", "resize": 72, "on_corrupt": "ON_CORRUPT_SKIP")"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.path, "flowers");
  EXPECT_EQ(spec->data.image_size, 64);
  EXPECT_EQ(spec->data.resize, 72);
  EXPECT_TRUE(spec->data.skip_corrupt);
  EXPECT_FALSE(ParseTrainingSpec(kMinimal)->data.skip_corrupt);
  EXPECT_THAT(ViolatedFields(WithData(R"("image_size": 0, "on_corrupt": "ignore")")),
              ElementsAre("spec.data.image_size", "spec.data.on_corrupt"));
}

TEST(TrainingSpec, EnumerationsAreReadByAnyOfTheirNames) {
  for (const char* name : {"\"unit\"", "\"NORMALIZE_UNIT\"", "2"}) {
    const auto spec = ParseTrainingSpec(
        std::string(R"({"model": {"mlp": {}}, "data": {"dataset": "glyphs", "normalize": )") +
        name + R"(}, "train": {"steps": "5"}, "optimizer": {"sgd": {"lr": 1}}})");
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->data.normalize, DataSpec::Normalize::kUnit);
    EXPECT_EQ(spec->train.steps, 5);
  }
}

TEST(TrainingSpec, Gpt2ReadsTokens) {
  const auto parse = [](const std::string& model) {
    return ParseTrainingSpec(absl::StrCat(R"({"model": {"gpt2": )", model, R"(},
        "data": {"dataset": "tokens", "path": "webtext"}, "train": {"steps": 5},
        "optimizer": {"sgd": {"lr": 1}}})"));
  };
  const auto standard = parse("{}");
  ASSERT_TRUE(standard.ok()) << standard.status();
  EXPECT_EQ(standard->model, (ModelSpec{.kind = ModelSpec::Kind::kGpt2,
                                        .input = {1024},
                                        .vocabulary = 50257,
                                        .classes = 50257,
                                        .width = 768,
                                        .layers = 12,
                                        .heads = 12,
                                        .dropout = 0.1}));
  EXPECT_EQ(standard->data.path, "webtext");
  const auto small = parse(
      R"({"layers": "4", "heads": 2, "width": 128, "context": 64, "vocabulary": 65, "dropout": 0})");
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->model, (ModelSpec{.kind = ModelSpec::Kind::kGpt2,
                                     .input = {64},
                                     .vocabulary = 65,
                                     .classes = 65,
                                     .width = 128,
                                     .layers = 4,
                                     .heads = 2}));
  const auto fields = [&](const std::string& model) {
    std::vector<std::string> found;
    for (const auto& violation : GetFieldViolations(parse(model).status())) {
      found.push_back(violation.field);
    }
    return found;
  };
  EXPECT_THAT(fields(R"({"heads": 5})"), ElementsAre("spec.model.gpt2.heads"));
  EXPECT_THAT(fields(R"({"layers": 0, "context": 0, "vocabulary": 1, "dropout": 1})"),
              ElementsAre("spec.model.gpt2.layers", "spec.model.gpt2.context",
                          "spec.model.gpt2.vocabulary", "spec.model.gpt2.dropout"));
}

TEST(TrainingSpec, ResidualNetworksHaveDefaultsOfTheirOwn) {
  const auto parse = [](const std::string& model) {
    return ParseTrainingSpec(absl::StrCat(R"({"model": )", model, R"(, "data": {"dataset": "x"},
        "train": {"steps": 5}, "optimizer": {"sgd": {"lr": 1}}})"));
  };
  const auto resnet = parse(R"({"resnet": {}})");
  ASSERT_TRUE(resnet.ok()) << resnet.status();
  EXPECT_EQ(resnet->model,
            (ModelSpec{.kind = ModelSpec::Kind::kResnet, .input = {3, 224, 224}, .classes = 1000}));
  const auto cifar = parse(
      R"({"resnet": {"depth": "20", "stem": "cifar", "classes": 10, "input": [3, 32, 32],
          "zero_init_residual": true}})");
  ASSERT_TRUE(cifar.ok()) << cifar.status();
  EXPECT_EQ(cifar->model, (ModelSpec{.kind = ModelSpec::Kind::kResnet,
                                     .input = {3, 32, 32},
                                     .depth = 20,
                                     .stem = ModelSpec::Stem::kCifar,
                                     .zero_init_residual = true}));
  const auto wide = parse(R"({"wide_resnet": {"width": 4}})");
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(
      wide->model,
      (ModelSpec{
          .kind = ModelSpec::Kind::kWideResnet, .input = {3, 32, 32}, .depth = 28, .width = 4}));
}

TEST(TrainingSpec, AllViolationsComeAtOnceWithTheirPaths) {
  EXPECT_THAT(
      ViolatedFields(R"({
    "model": {"convnet": {"channels": [32], "classes": "1"}},
    "data": {},
    "train": {"epochs": 1, "steps": 2, "global_batch": 0, "label_smoothing": 1},
    "optimizer": {"sgd": {"lr": 0, "momentum": 1}},
    "schedule": {"step": {"milestones": [3, 1]}},
    "checkpoint": {"every": {"time": "0s"}}})"),
      ElementsAre("spec.model.convnet.classes", "spec.model.convnet.channels", "spec.data.dataset",
                  "spec.train", "spec.train.global_batch", "spec.train.label_smoothing",
                  "spec.optimizer.sgd.lr", "spec.optimizer.sgd.momentum",
                  "spec.schedule.step.milestones", "spec.checkpoint.every.time"));
}

TEST(TrainingSpec, TypesAreStrict) {
  EXPECT_THAT(ViolatedFields(R"({
    "model": {"mlp": {"hidden": [1.5]}}, "data": {"dataset": 7}, "train": {"epochs": true},
    "optimizer": {"sgd": {"lr": "fast", "nesterov": 1}}, "evaluate": {"every": {"time": 3}}})"),
              ElementsAre("spec.model.mlp.hidden[0]", "spec.data.dataset", "spec.train.epochs",
                          "spec.optimizer.sgd.lr", "spec.optimizer.sgd.nesterov",
                          "spec.evaluate.every.time"));
}

TEST(TrainingSpec, AnEmptySpecNamesEverySection) {
  EXPECT_THAT(ViolatedFields("{}"),
              ElementsAre("spec.model", "spec.data", "spec.train", "spec.optimizer"));
}

TEST(TrainingSpec, NesterovNeedsMomentum) {
  const auto spec = ParseTrainingSpec(R"({
    "model": {"mlp": {}}, "data": {"dataset": "glyphs"}, "train": {"epochs": 1},
    "optimizer": {"sgd": {"lr": 0.1, "nesterov": true}}})");
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("without momentum"));
}

// The spec with this optimizer and schedule.
std::string WithOptimizer(const std::string& optimizer, const std::string& schedule = "{}") {
  return R"({"model": {"mlp": {}}, "data": {"dataset": "glyphs"}, "train": {"epochs": 1},
             "optimizer": )" +
         optimizer + R"(, "schedule": )" + schedule + "}";
}

TEST(TrainingSpec, OptimizersAreReadWithTheirOwnDefaults) {
  using Rule = OptimizerSpec::Rule;
  const std::pair<const char*, OptimizerSpec> cases[] = {
      {R"({"sgd": {"lr": 0.1}})", {.lr = 0.1}},
      {R"({"sgd": {"lr": 0.1, "decay_bias_and_norm": false}, "clip_norm": 2,
           "lr_base_batch": "256"})",
       {.lr = 0.1, .decay_bias_and_norm = false, .clip_norm = 2, .lr_base_batch = 256}},
      {R"({"adamw": {"lr": 0.001}})", {.rule = Rule::kAdamW, .lr = 0.001, .weight_decay = 0.01}},
      {R"({"adamw": {"lr": 0.001, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1,
           "decay_bias_and_norm": false}, "ema_decay": 0.999})",
       {.rule = Rule::kAdamW,
        .lr = 0.001,
        .weight_decay = 0.1,
        .beta1 = 0.8,
        .beta2 = 0.95,
        .eps = 1e-6,
        .decay_bias_and_norm = false,
        .ema_decay = 0.999}},
      {R"({"lars": {"lr": 10}})",
       {.rule = Rule::kLars, .lr = 10, .momentum = 0.9, .eps = 0, .decay_bias_and_norm = false}},
      {R"({"lars": {"lr": 10, "momentum": 0.8, "nesterov": true, "weight_decay": 0.0002,
           "trust_coefficient": 0.02, "eps": 1e-9, "decay_bias_and_norm": true}})",
       {.rule = Rule::kLars,
        .lr = 10,
        .momentum = 0.8,
        .nesterov = true,
        .weight_decay = 0.0002,
        .eps = 1e-9,
        .trust_coefficient = 0.02}},
      {R"({"lamb": {"lr": 0.01, "betas": [0.9, 0.99]}})",
       {.rule = Rule::kLamb,
        .lr = 0.01,
        .weight_decay = 0.01,
        .beta2 = 0.99,
        .eps = 1e-6,
        .decay_bias_and_norm = false}},
  };
  for (const auto& [text, expected] : cases) {
    const auto spec = ParseTrainingSpec(WithOptimizer(text));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->optimizer, expected) << text;
  }
}

TEST(TrainingSpec, ThePolynomialScheduleIsRead) {
  const auto spec = ParseTrainingSpec(
      WithOptimizer(R"({"sgd": {"lr": 1}})", R"({"polynomial": {"power": 2, "final_lr": 0.1}})"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->schedule,
            (ScheduleSpec{.shape = ScheduleSpec::Shape::kPolynomial, .final_lr = 0.1, .power = 2}));
}

TEST(TrainingSpec, BadOptimizersAreToldWithPathAndValue) {
  struct Case {
    const char* optimizer;
    const char* field;
    const char* value;
  };
  const Case cases[] = {
      {R"({"sgd": {"lr": 1}, "adamw": {"lr": 1}})", "spec.optimizer", "more than one of sgd"},
      {R"({"adam": {"lr": 1}})", "spec.optimizer", "none of sgd, adamw, lars, lamb"},
      {R"({"adamw": {}})", "spec.optimizer.adamw.lr", ""},
      {R"({"adamw": {"lr": 1, "betas": [0.9]}})", "spec.optimizer.adamw.betas", "is [0.9];"},
      {R"({"lamb": {"lr": 1, "betas": [0.9, 1]}})", "spec.optimizer.lamb.betas", "is [0.9,1];"},
      {R"({"adamw": {"lr": 1, "eps": 0}})", "spec.optimizer.adamw.eps", "is 0;"},
      {R"({"lars": {"lr": 1, "eps": -1}})", "spec.optimizer.lars.eps", "is -1;"},
      {R"({"lars": {"lr": 1, "trust_coefficient": 0}})", "spec.optimizer.lars.trust_coefficient",
       "is 0;"},
      {R"({"lars": {"lr": 1, "momentum": 0, "nesterov": true}})", "spec.optimizer.lars.nesterov",
       "set optimizer.lars.momentum"},
      {R"({"lamb": {"lr": 1, "weight_decay": 2}})", "spec.optimizer.lamb.weight_decay", "is 2;"},
      {R"({"lamb": {"lr": 1, "decay_bias_and_norm": 1}})",
       "spec.optimizer.lamb.decay_bias_and_norm", ""},
      {R"({"sgd": {"lr": 1}, "clip_norm": -0.5})", "spec.optimizer.clip_norm", "is -0.5;"},
      {R"({"sgd": {"lr": 1}, "ema_decay": 1})", "spec.optimizer.ema_decay", "is 1;"},
      {R"({"sgd": {"lr": 1}, "lr_base_batch": -1})", "spec.optimizer.lr_base_batch", "-1"},
  };
  for (const Case& c : cases) {
    const auto spec = ParseTrainingSpec(WithOptimizer(c.optimizer));
    const std::vector<FieldViolation> violations = GetFieldViolations(spec.status());
    ASSERT_EQ(violations.size(), 1U) << c.optimizer << ": " << spec.status();
    EXPECT_EQ(violations[0].field, c.field);
    EXPECT_THAT(violations[0].description, HasSubstr(c.value));
  }
  EXPECT_THAT(ViolatedFields(WithOptimizer(R"({"sgd": {"lr": 1}})",
                                           R"({"polynomial": {"power": 0, "final_lr": -1}})")),
              ElementsAre("spec.schedule.polynomial.power", "spec.schedule.polynomial.final_lr"));
}

TEST(TrainingSpec, MemoryIsReadAndChecked) {
  const auto with = [](const std::string& memory) {
    return absl::StrCat(R"({"memory": )", memory, ", ", std::string(kMinimal).substr(1));
  };
  EXPECT_EQ(ParseTrainingSpec(kMinimal)->memory, MemorySpec{});
  const auto spec = ParseTrainingSpec(with(R"({"recompute": true, "microbatch": "16"})"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->memory, (MemorySpec{.recompute = true, .microbatch = 16}));
  EXPECT_THAT(ViolatedFields(with(R"({"microbatch": -1, "recompute": 2})")),
              ElementsAre("spec.memory.recompute", "spec.memory.microbatch"));
}

TEST(TrainingSpec, DuplicateKeysAreRefused) {
  const auto spec = ParseTrainingSpec(R"({"name": "a", "name": "b"})");
  EXPECT_TRUE(absl::IsDataLoss(spec.status())) << spec.status();
}

}  // namespace
}  // namespace trainyard::run_dir
