// Inline layers as the trainer reads them.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/run_dir/training_spec.h"

namespace trainyard::run_dir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<TrainingSpec> Parse(absl::string_view model, absl::string_view more = "") {
  return ParseTrainingSpec(absl::StrCat(
      R"({"model": {"layers": )", model,
      R"(}, "data": {"dataset": "glyphs"}, "train": {"epochs": 1}, "optimizer": {"sgd": {"lr": 0.1}})",
      more, "}"));
}

std::vector<std::string> Violations(absl::string_view model, absl::string_view more = "") {
  std::vector<std::string> texts;
  for (const FieldViolation& violation : GetFieldViolations(Parse(model, more).status())) {
    texts.push_back(absl::StrCat(violation.field, ": ", violation.description));
  }
  return texts;
}

TEST(LayersSpec, EveryFieldIsRead) {
  const auto spec = Parse(R"({"input": [3, "64", 64], "stack": [
    {"name": "c", "conv2d": {"channels": "6", "kernel": 5, "stride": 2, "padding": 2, "dilation": 1,
                             "groups": 3, "bias": false}},
    {"batch_norm": {"eps": 0.001, "momentum": 0.2}}, {"relu": {}}, {"tanh": {}}, {"sigmoid": {}},
    {"gelu": {"tanh": true}}, {"from": ["c", "gelu1"], "add": {}},
    {"from": ["add1", "c"], "concat": {}}, {"max_pool": {"kernel": 3, "stride": 1, "padding": 1,
                                                         "ceil_mode": true}},
    {"avg_pool": {"kernel": 2, "stride": 1, "padding": 1, "count_padding": false}},
    {"lrn": {"size": 3, "alpha": 0.1, "beta": 0.5, "k": 2}}, {"dropout": {"rate": 0.25}},
    {"global_avg_pool": {}}, {"flatten": {}}, {"layer_norm": {"eps": 0.01}},
    {"linear": {"features": 11, "bias": false}}]})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.kind, ModelSpec::Kind::kLayers);
  EXPECT_THAT(spec->model.input, ElementsAre(3, 64, 64));
  EXPECT_EQ(spec->model.classes, 11);
  using layers::Plain;
  const std::vector<layers::Layer> expected = {
      {"c",
       {},
       layers::Conv2d{
           .channels = 6, .kernel = 5, .stride = 2, .padding = 2, .groups = 3, .bias = false}},
      {"", {}, layers::BatchNorm{.eps = 0.001, .momentum = 0.2}},
      {"", {}, Plain::kRelu},
      {"", {}, Plain::kTanh},
      {"", {}, Plain::kSigmoid},
      {"", {}, layers::Gelu{.tanh = true}},
      {"", {"c", "gelu1"}, Plain::kAdd},
      {"", {"add1", "c"}, Plain::kConcat},
      {"", {}, layers::MaxPool{.kernel = 3, .stride = 1, .padding = 1, .ceil_mode = true}},
      {"", {}, layers::AvgPool{.kernel = 2, .stride = 1, .padding = 1, .count_padding = false}},
      {"", {}, layers::Lrn{.size = 3, .alpha = 0.1, .beta = 0.5, .k = 2}},
      {"", {}, layers::Dropout{.rate = 0.25}},
      {"", {}, Plain::kGlobalAvgPool},
      {"", {}, Plain::kFlatten},
      {"", {}, layers::LayerNorm{.eps = 0.01}},
      {"", {}, layers::Linear{.features = 11, .bias = false}}};
  EXPECT_EQ(spec->model.stack.layers, expected);
}

TEST(LayersSpec, SequencesAreRead) {
  const auto spec = Parse(R"({"input": [16], "vocabulary": "50", "stack": [
    {"embedding": {"width": 12}}, {"position_embedding": {}}, {"linear": {"features": 36}},
    {"attention": {"heads": 4}}, {"linear": {"features": 50}}]})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.vocabulary, 50);
  EXPECT_EQ(spec->model.classes, 50);
  EXPECT_EQ(spec->model.stack.layers[3].kind, layers::Kind(layers::Attention{.heads = 4}));
}

TEST(LayersSpec, BrokenFieldsAreAllReported) {
  EXPECT_THAT(Violations(R"({"stack": [{"conv2d": {"kernel": 0}}, {"relu": {}, "tanh": {}}, {},
                    {"dropout": {"rate": 1}}, {"batch_norm": {"eps": 0, "momentum": 2}},
                    {"from": [7], "linear": {"features": 10}}]})"),
              ElementsAre(HasSubstr("spec.model.layers.stack[0].conv2d.channels: is missing"),
                          HasSubstr("spec.model.layers.stack[0].conv2d.kernel: is 0"),
                          HasSubstr("spec.model.layers.stack[1]: holds more than one of conv2d"),
                          HasSubstr("spec.model.layers.stack[2]: holds none of conv2d"),
                          HasSubstr("spec.model.layers.stack[3].dropout.rate: is 1"),
                          HasSubstr("spec.model.layers.stack[4].batch_norm.eps: is 0"),
                          HasSubstr("spec.model.layers.stack[4].batch_norm.momentum: is 2"),
                          HasSubstr("spec.model.layers.stack[5].from[0]: is 7")));
  EXPECT_THAT(Violations(R"({"stack": []})"),
              ElementsAre(HasSubstr("spec.model.layers.stack: has 0 layers")));
}

TEST(LayersSpec, WhatDoesNotFitIsReported) {
  EXPECT_THAT(Violations(R"({"stack": [{"conv2d": {"channels": 4}},
                                       {"name": "head", "linear": {"features": 10}}]})"),
              ElementsAre("spec.model.layers.stack[1]: linear 'head' reads [4, 26, 26] of "
                          "'conv2d1', an image; put `flatten` before it"));
}

TEST(InitSpec, IsReadWhereItIsGiven) {
  const char* model = R"({"stack": [{"flatten": {}}, {"linear": {"features": 10}}]})";
  const auto without = Parse(model);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->init, InitSpec());
  const auto with = Parse(
      model, R"(, "init": {"checkpoint": "a/b.safetensors", "skip": ["fc."], "digest": "x"})");
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->init,
            (InitSpec{.checkpoint = "a/b.safetensors", .skip = {"fc."}, .digest = "x"}));
  EXPECT_THAT(Violations(model, R"(, "init": {"skip": "fc."})"),
              ElementsAre(HasSubstr("spec.init.checkpoint: is missing"),
                          HasSubstr("spec.init.skip: is \"fc.\"; expected a list of strings")));
}

}  // namespace
}  // namespace trainyard::run_dir
