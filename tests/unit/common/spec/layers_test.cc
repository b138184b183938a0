// Tests inline layers in specs: defaults in lists, checks at submission, changes, differences.
#include "common/spec/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "common/layers/plan.h"
#include "common/spec/change.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"
#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// conv2d - relu - add with the convolution - flatten - linear, for glyphs.
v1::JobSpec LayersSpec() {
  v1::JobSpec spec = ValidSpec();
  v1::LayersModel& model = *spec.mutable_model()->mutable_layers();
  v1::Layer& conv = *model.add_stack();
  conv.set_name("conv");
  conv.mutable_conv2d()->set_channels(4);
  model.add_stack()->mutable_relu();
  v1::Layer& sum = *model.add_stack();
  sum.add_from("conv");
  sum.add_from("relu1");
  sum.mutable_add();
  model.add_stack()->mutable_flatten();
  model.add_stack()->mutable_linear()->set_features(10);
  return spec;
}

std::vector<std::string> Violations(const v1::JobSpec& spec) {
  v1::JobSpec resolved;
  std::vector<std::string> texts;
  for (const auto& violation : ResolveInto(spec, resolved)) {
    texts.push_back(violation.field + ": " + violation.description);
  }
  return texts;
}

TEST(Layers, DefaultsAreFilledInInEachLayer) {
  const auto spec = ResolveSpec(LayersSpec());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const v1::LayersModel& model = spec->model().layers();
  EXPECT_THAT(model.input(), ElementsAre(1, 28, 28));
  EXPECT_EQ(model.stack(0).conv2d().kernel(), 3);
  EXPECT_TRUE(model.stack(0).conv2d().bias());
  EXPECT_EQ(model.stack(0).conv2d().channels(), 4);
  EXPECT_TRUE(model.stack(4).linear().bias());
  EXPECT_EQ(ResolveSpec(*spec)->SerializeAsString(), spec->SerializeAsString());
}

TEST(Layers, EveryKindBecomesTheStructOfItsName) {
  const auto& kinds = *v1::Layer::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds.field_count(); ++i) {
    v1::JobSpec spec = ValidSpec();
    v1::Layer& layer = *spec.mutable_model()->mutable_layers()->add_stack();
    layer.GetReflection()->MutableMessage(&layer, kinds.field(i));
    v1::JobSpec resolved;
    ResolveInto(spec, resolved);
    const layers::Stack stack = ToStack(resolved.model().layers());
    EXPECT_EQ(layers::KindName(stack.layers[0].kind), kinds.field(i)->name());
  }
}

TEST(Layers, WhatDoesNotFitIsRefusedWithItsPath) {
  v1::JobSpec spec = LayersSpec();
  spec.mutable_model()->mutable_layers()->mutable_stack(2)->set_from(1, "relu");
  spec.mutable_model()->mutable_layers()->mutable_stack(3)->mutable_relu();
  EXPECT_THAT(Violations(spec),
              ElementsAre("spec.model.layers.stack[2].from[1]: add 'add1' reads 'relu', and no "
                          "layer before it has that name; did you mean 'relu1'?"));
  spec.mutable_model()->mutable_layers()->mutable_stack(2)->set_from(1, "relu1");
  EXPECT_THAT(Violations(spec),
              ElementsAre("spec.model.layers.stack[4]: linear 'linear1' reads [4, 26, 26] of "
                          "'relu2', an image; put `flatten` before it"));
}

TEST(Layers, AFieldThatBreaksItsRuleSaysEnough) {
  v1::JobSpec spec = LayersSpec();
  spec.mutable_model()->mutable_layers()->mutable_stack(0)->mutable_conv2d()->clear_channels();
  spec.mutable_model()->mutable_layers()->mutable_stack(3)->clear_flatten();
  EXPECT_THAT(Violations(spec),
              ElementsAre("spec.model.layers.stack[0].conv2d.channels: must be given",
                          HasSubstr("spec.model.layers.stack[3]: must have one of conv2d")));
  spec.mutable_model()->mutable_layers()->clear_stack();
  EXPECT_THAT(Violations(spec),
              ElementsAre(HasSubstr("spec.model.layers.stack: must be given, with")));
}

TEST(Layers, BothEndsFitTheData) {
  v1::JobSpec spec = LayersSpec();
  spec.mutable_data()->set_dataset("cifar100");
  EXPECT_THAT(Violations(spec),
              ElementsAre(HasSubstr("spec.model.layers.input: [1, 28, 28] does not fit data set "
                                    "'cifar100'; expected [3, 32, 32]"),
                          "spec.model.layers.stack[4]: ends the stack with 10 classes, too few for "
                          "data set 'cifar100'; expected 100 or more"));
  spec.mutable_data()->set_dataset("images");
  spec.mutable_data()->set_path("pets");
  EXPECT_THAT(Violations(spec), ElementsAre(HasSubstr("expected [3, 224, 224]")));
}

TEST(Layers, TokensDoNotComeFromImages) {
  v1::JobSpec spec = LayersSpec();
  v1::LayersModel& model = *spec.mutable_model()->mutable_layers();
  model.set_vocabulary(100);
  model.add_input(16);
  model.clear_stack();
  model.add_stack()->mutable_embedding()->set_width(8);
  model.add_stack()->mutable_linear()->set_features(100);
  EXPECT_THAT(Violations(spec),
              ElementsAre(HasSubstr("spec.data.dataset: 'glyphs' has images, but layers reads "
                                    "tokens; use tokens or tinyshakespeare")));
}

v1::JobSpec ChangedLayers(const char* path, const char* value) {
  v1::JobSpec spec = *ResolveSpec(LayersSpec());
  const absl::Status status = ApplyChange(spec, path, value);
  EXPECT_TRUE(status.ok()) << status;
  return spec;
}

std::string RefusedLayers(const char* path, const char* value) {
  v1::JobSpec spec = *ResolveSpec(LayersSpec());
  const absl::Status status = ApplyChange(spec, path, value);
  EXPECT_EQ(ErrorReason(status), error::kInvalidSpec) << path << "=" << value;
  return std::string(status.message());
}

TEST(Layers, ChangesReachIntoTheList) {
  const auto layer = [](const char* path, const char* value, int index) {
    return ChangedLayers(path, value).model().layers().stack(index);
  };
  EXPECT_EQ(layer("model.layers.stack[4].linear.features", "12", 4).linear().features(), 12);
  EXPECT_EQ(layer("model.layers.stack[0].conv2d.channels", "9", 0).conv2d().channels(), 9);
  EXPECT_EQ(layer("model.layers.stack[0].name", "first", 0).name(), "first");
  EXPECT_THAT(layer("model.layers.stack[2].from[1]", "conv", 2).from(),
              ElementsAre("conv", "conv"));
  EXPECT_TRUE(layer("model.layers.stack[1].tanh", "{}", 1).has_tanh());
  EXPECT_TRUE(layer("model.layers.stack[1]", "sigmoid", 1).has_sigmoid());
  const char* conv = R"({"name": "x", "conv2d": {"channels": 4, "padding": 1}})";
  EXPECT_EQ(layer("model.layers.stack[1]", conv, 1).conv2d().padding(), 1);
  EXPECT_EQ(ChangedLayers("model.layers.stack", R"(["flatten", {"linear": {"features": 10}}])")
                .model()
                .layers()
                .stack_size(),
            2);
}

TEST(Layers, ChangesOutsideOfTheListAreRefused) {
  EXPECT_THAT(RefusedLayers("model.layers.stack[5].name", "x"),
              HasSubstr("the list has 5 elements"));
  EXPECT_THAT(RefusedLayers("model.layers.stack[5]", "relu"), HasSubstr("the list has 5 elements"));
  EXPECT_EQ(RefusedLayers("model.layers.stack.name", "x"),
            "model.layers.stack: is a list; write which element is meant, such as stack[0].name");
  EXPECT_EQ(RefusedLayers("model.layers.stack[1].reluu", "{}"),
            "model.layers.stack[1].reluu: no such field; did you mean 'relu'?");
  EXPECT_THAT(RefusedLayers("model.layers.stack[1]", "[1]"), HasSubstr("expected one value"));
  EXPECT_THAT(RefusedLayers("model.layers.stack[1]", R"({"conv2d": {"chanels": 1}})"),
              HasSubstr("model.layers.stack[1].conv2d.chanels: no such field"));
}

TEST(Layers, DifferencesNameTheLayer) {
  const v1::JobSpec left = *ResolveSpec(LayersSpec());
  v1::JobSpec right = left;
  right.mutable_model()->mutable_layers()->mutable_stack(0)->mutable_conv2d()->set_channels(8);
  right.mutable_model()->mutable_layers()->mutable_stack(1)->mutable_tanh();
  const auto differences = DiffSpecs(left, right);
  EXPECT_THAT(differences,
              ElementsAre(FieldDifference{"model.layers.stack[0].conv2d.channels", "4", "8"},
                          FieldDifference{"model.layers.stack[1].relu", "{}", ""},
                          FieldDifference{"model.layers.stack[1].tanh", "", "{}"}));
  v1::JobSpec changed = left;
  for (const FieldDifference& difference : differences) {
    ASSERT_TRUE(ApplyChange(changed, difference.path, difference.right_json).ok());
  }
  EXPECT_THAT(DiffSpecs(changed, right), IsEmpty());
  right.mutable_model()->mutable_layers()->add_stack()->mutable_relu();
  ASSERT_EQ(DiffSpecs(left, right).size(), 1u);
  EXPECT_EQ(DiffSpecs(left, right)[0].path, "model.layers.stack");
}

TEST(Init, TheFileStaysInItsFolder) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_init()->set_checkpoint("weights/../../etc/passwd");
  spec.mutable_init()->add_skip("");
  EXPECT_THAT(Violations(spec),
              ElementsAre(HasSubstr("spec.init.checkpoint: 'weights/../../etc/passwd' leads out of "
                                    "the folder of data sets"),
                          HasSubstr("spec.init.skip[0]: is empty")));
  spec.mutable_init()->set_checkpoint("weights/resnet18.safetensors");
  spec.mutable_init()->set_skip(0, "fc.");
  EXPECT_THAT(Violations(spec), IsEmpty());
  spec.mutable_init()->set_checkpoint("/etc/passwd");
  EXPECT_THAT(Violations(spec), ElementsAre(HasSubstr("expected text of the form")));
}

}  // namespace
}  // namespace trainyard::spec
