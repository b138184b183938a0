// Tests the spec as the trainer reads it, and the values that it hands to the engine and to the
// data sets.
#include "worker/trainer/plan/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "worker/run_dir/assignment.h"
#include "worker/trainer/plan/data_setup.h"
#include "worker/trainer/plan/model_setup.h"

namespace trainyard::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A spec in which these members replace its own, or are added to them.
struct SpecText {
  std::string model = R"({"mlp": {}})";
  std::string data = R"({"dataset": "glyphs"})";
  std::string train = R"({"epochs": 1})";
  std::string optimizer = R"({"sgd": {"lr": 0.1}})";
  std::string more = "";

  std::string Json() const {
    return absl::StrCat(R"({"model": )", model, R"(, "data": )", data, R"(, "train": )", train,
                        R"(, "optimizer": )", optimizer, more, "}");
  }
};

std::vector<std::string> ViolatedFields(const std::string& text) {
  std::vector<std::string> fields;
  for (const FieldViolation& violation : GetFieldViolations(ParseSpec(text).status())) {
    fields.push_back(violation.field);
  }
  return fields;
}

// This is a file that an older worker wrote.
TEST(Spec, IsReadFromAnAssignmentOnDisk) {
  const std::string path = testing::SourcePath("tests/data/run_directory/assignment.json");
  const auto assignment = run_dir::DecodeAssignment(ReadFile(path).value(), path);
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  const auto spec = ParseSpec(assignment->spec_json);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "convnet-glyphs");
  EXPECT_TRUE(spec->model().convnet().batch_norm());
  EXPECT_THAT(spec->model().convnet().channels(), ElementsAre(32, 64));
  EXPECT_EQ(spec->data().train_size(), 2000);
  EXPECT_EQ(spec->train().epochs(), 3);
  EXPECT_EQ(spec->train().replicas(), 2);
  EXPECT_EQ(spec->checkpoint().every().steps(), 100);
  EXPECT_EQ(spec->evaluate().every().time().seconds(), 90);
  EXPECT_THAT(spec->schedule().step().milestones(), ElementsAre(1, 2.5));
}

TEST(Spec, HasTheDefaultsOfTheProtoButNoReplicas) {
  const auto spec = ParseSpec(SpecText().Json());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train().global_batch(), 64);
  EXPECT_EQ(spec->train().seed(), 1U);
  EXPECT_TRUE(spec->checkpoint().every().automatic());
  EXPECT_EQ(spec->stages().count(), 1);
  EXPECT_EQ(spec->train().replicas(), 0);
  EXPECT_EQ(ReplicaCount(spec->train(), 3), 3);
}

TEST(Spec, CutsTellTheNumberOfStages) {
  SpecText text;
  text.more = R"(, "stages": {"cuts": ["fc2", "fc3"]})";
  EXPECT_EQ(ParseSpec(text.Json())->stages().count(), 3);
}

// A checkpoint may have been written by a version whose spec had other fields.
TEST(Spec, UnknownFieldsArePassedOver) {
  SpecText text;
  text.more = R"(, "flavour": {"sweet": [1, 2]})";
  EXPECT_TRUE(ParseSpec(text.Json()).ok()) << ParseSpec(text.Json()).status();
}

// A job must not be trained in another number type than was requested.
TEST(Spec, UnknownValuesOfEnumsAreRefused) {
  SpecText text;
  text.train = R"({"epochs": 1, "precision": "bf16"})";
  EXPECT_THAT(std::string(ParseSpec(text.Json()).status().message()), HasSubstr("bf16"));
  text.train = R"({"epochs": 1, "precision": "PRECISION_BF16"})";
  EXPECT_EQ(ParseSpec(text.Json())->train().precision(), v1::PRECISION_BF16);
}

TEST(Spec, AllViolationsComeAtOnceWithTheirPaths) {
  EXPECT_THAT(
      ViolatedFields(R"({
    "model": {"convnet": {"channels": [32], "classes": "1"}},
    "data": {},
    "train": {"epochs": 1, "global_batch": 0, "label_smoothing": 1},
    "optimizer": {"sgd": {"lr": 0, "momentum": 1}},
    "schedule": {"step": {"milestones": [3, 1]}},
    "checkpoint": {"every": {"time": "0s"}}, "evaluate": {"every": {"automatic": true}}})"),
      ElementsAre("spec.model.convnet.channels", "spec.model.convnet.classes", "spec.data.dataset",
                  "spec.train.global_batch", "spec.train.label_smoothing", "spec.optimizer.sgd.lr",
                  "spec.optimizer.sgd.momentum", "spec.schedule.step.milestones[1]",
                  "spec.checkpoint.every.time", "spec.evaluate.every"));
  EXPECT_THAT(ViolatedFields("{}"),
              ElementsAre("spec.model", "spec.data", "spec.train", "spec.optimizer"));
}

TEST(Spec, WhatDoesNotFitTogetherIsRefused) {
  SpecText text;
  text.optimizer = R"({"sgd": {"lr": 0.1, "nesterov": true}})";
  EXPECT_THAT(ViolatedFields(text.Json()), ElementsAre("spec.optimizer.sgd.nesterov"));
  text = {.model = R"({"gpt2": {"heads": 5}})"};
  EXPECT_THAT(ViolatedFields(text.Json()), ElementsAre("spec.model.gpt2.heads"));
  text = {.data = R"({"dataset": "cifar10",
                      "augment": {"random_resized_crop": {"max_area": 0.01}}})"};
  EXPECT_THAT(ViolatedFields(text.Json()),
              ElementsAre("spec.data.augment.random_resized_crop.min_area"));
  text = {.model = R"({"layers": {"stack": [{"conv2d": {"channels": 4}},
                                            {"linear": {"features": 10}}]}})"};
  EXPECT_THAT(ViolatedFields(text.Json()), ElementsAre("spec.model.layers.stack[1]"));
}

TEST(Spec, WhatIsNoJsonOfASpecSaysSo) {
  for (const char* text : {"", "[]", "{\"train\": 3}", R"({"train": {"epochs": "soon"}})"}) {
    const auto spec = ParseSpec(text);
    EXPECT_EQ(ErrorReason(spec.status()), error::kInvalidSpec) << text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("is not a JobSpec in JSON"));
  }
}

TEST(Spec, EndsOfANetworkAreItsInputAndItsClasses) {
  const auto ends = [](const std::string& model) {
    const auto spec = ParseSpec(SpecText{.model = model}.Json());
    EXPECT_TRUE(spec.ok()) << spec.status();
    return EndsOf(spec->model());
  };
  EXPECT_THAT(ends(R"({"resnet": {}})").input, ElementsAre(3, 224, 224));
  EXPECT_EQ(ends(R"({"resnet": {}})").classes, 1000);
  EXPECT_THAT(ends(R"({"wide_resnet": {}})").input, ElementsAre(3, 32, 32));
  const ModelEnds text = ends(R"({"gpt2": {"context": 64, "vocabulary": 65}})");
  EXPECT_THAT(text.input, ElementsAre(64));
  EXPECT_EQ(text.classes, 65);
  EXPECT_EQ(text.vocabulary, 65);
  const ModelEnds stack = ends(R"({"layers": {"input": [16], "vocabulary": "50", "stack": [
    {"embedding": {"width": 12}}, {"linear": {"features": 50}}]}})");
  EXPECT_THAT(stack.input, ElementsAre(16));
  EXPECT_EQ(stack.classes, 50);
  EXPECT_EQ(stack.vocabulary, 50);
}

TEST(DataSetup, ReadsAugmentation) {
  const auto made = [](const std::string& augment) {
    const auto spec = ParseSpec(
        SpecText{.data = absl::StrCat(R"({"dataset": "cifar10", "augment": )", augment, "}")}
            .Json());
    EXPECT_TRUE(spec.ok()) << spec.status();
    return MakeAugmentation(spec->data().augment());
  };
  EXPECT_EQ(made(R"({"pad_crop": "4", "flip": true, "cutout": 16,
          "color": {"brightness": 0.1, "contrast": 0.4, "saturation": 0.2, "hue": 0.3}})"),
            (data::Augmentation{.pad_crop = 4,
                                .flip = true,
                                .brightness = 0.1,
                                .contrast = 0.4,
                                .saturation = 0.2,
                                .hue = 0.3,
                                .cutout = 16}));
  EXPECT_EQ(made(R"({"random_resized_crop": {"max_area": 0.5}})"),
            (data::Augmentation{.min_area = 0.08, .max_area = 0.5}));
  EXPECT_EQ(made("{}"), data::Augmentation());
}

TEST(DataSetup, ReadsWhereImagesLie) {
  const auto options = [](const std::string& data) {
    const auto spec = ParseSpec(SpecText{.data = data}.Json());
    EXPECT_TRUE(spec.ok()) << spec.status();
    return MakeDatasetOptions(*spec, "/data");
  };
  const data::DatasetOptions given =
      options(R"({"dataset": "images", "path": "flowers", "image_size": "64", "resize": 72})");
  EXPECT_EQ(given.dataset_dir, "/data");
  EXPECT_EQ(given.path, "flowers");
  EXPECT_EQ(given.image_size, 64);
  EXPECT_EQ(given.resize, 72);
  EXPECT_EQ(options(R"({"dataset": "images", "path": "flowers"})").image_size, 224);
}

}  // namespace
}  // namespace trainyard::trainer
