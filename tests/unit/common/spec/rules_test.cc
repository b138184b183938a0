#include "common/spec/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns the only violation of `spec`.
FieldViolation Only(const v1::JobSpec& spec) {
  const auto violations = ValidateRules(spec, "spec");
  EXPECT_EQ(violations.size(), 1u);
  return violations.empty() ? FieldViolation() : violations.front();
}

TEST(Rules, AValidSpecHasNoViolation) {
  EXPECT_THAT(ValidateRules(ValidSpec(), "spec"), IsEmpty());
}

TEST(Rules, AnEmptySpecNamesEverythingThatMustBeGiven) {
  std::vector<std::string> fields;
  for (const auto& violation : ValidateRules(v1::JobSpec(), "spec")) {
    fields.push_back(violation.field);
    EXPECT_EQ(violation.description, violation.field == "spec.name"
                                         ? "must be given"
                                         : "must be given, or program in its place");
  }
  EXPECT_THAT(fields,
              ElementsAre("spec.name", "spec.model", "spec.data", "spec.train", "spec.optimizer"));
}

TEST(Rules, ARequiredOneofNamesItsMembers) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_train()->clear_epochs();
  EXPECT_EQ(Only(spec), (FieldViolation{"spec.train", "must have one of epochs, steps"}));
}

TEST(Rules, NumbersKeepToTheirLimits) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_train()->set_global_batch(16'777'216);
  EXPECT_THAT(ValidateRules(spec, "spec"), IsEmpty());
  spec.mutable_train()->set_global_batch(16'777'217);
  EXPECT_EQ(Only(spec), (FieldViolation{"spec.train.global_batch",
                                        "16777217 is not accepted; expected at least 1 and at most "
                                        "16777216"}));
}

TEST(Rules, ExclusiveLimitsAreRefusedThemselves) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0);
  EXPECT_EQ(Only(spec), (FieldViolation{"spec.optimizer.sgd.lr",
                                        "0 is not accepted; expected above 0 and at most 1000"}));
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(1);
  EXPECT_THAT(Only(spec).description, HasSubstr("at least 0 and below 1"));
}

TEST(Rules, NumbersMustBeFinite) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_optimizer()->mutable_sgd()->set_lr(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(Only(spec).description, HasSubstr("finite"));
}

TEST(Rules, NumbersMayBeOfAListOrOfASeries) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_model()->mutable_vgg()->set_depth(12);
  EXPECT_EQ(Only(spec), (FieldViolation{"spec.model.vgg.depth",
                                        "12 is not accepted; expected one of 11, 13, 16, 19"}));
  spec.mutable_model()->mutable_vgg()->set_depth(13);
  EXPECT_THAT(ValidateRules(spec, "spec"), ::testing::IsEmpty());
  spec.mutable_model()->mutable_wide_resnet()->set_depth(27);
  EXPECT_EQ(Only(spec), (FieldViolation{"spec.model.wide_resnet.depth",
                                        "27 is not accepted; expected 10, 16, 22 and so on"}));
  spec.mutable_model()->mutable_wide_resnet()->set_depth(28);
  EXPECT_THAT(ValidateRules(spec, "spec"), ::testing::IsEmpty());
}

TEST(Rules, ElementsOfListsAreNamedByIndex) {
  v1::JobSpec spec = ValidSpec();
  for (const int64_t width : {128, 64, 0}) spec.mutable_model()->mutable_mlp()->add_hidden(width);
  EXPECT_EQ(Only(spec).field, "spec.model.mlp.hidden[2]");
}

TEST(Rules, ListsKeepToTheirLengths) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_model()->mutable_convnet()->add_channels(32);
  EXPECT_EQ(Only(spec), (FieldViolation{"spec.model.convnet.channels",
                                        "has 1 element; expected exactly 2 elements"}));
}

TEST(Rules, AListWithoutDefaultMustBeGiven) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_schedule()->mutable_step();
  EXPECT_EQ(Only(spec).field, "spec.schedule.step.milestones");
}

TEST(Rules, TextsKeepToTheirPatternAndLength) {
  v1::JobSpec spec = ValidSpec();
  spec.set_name("a b");
  EXPECT_THAT(Only(spec).description, HasSubstr("expected text of the form"));
  spec.set_name(std::string(64, 'x'));
  EXPECT_THAT(Only(spec).description, HasSubstr("has 64 bytes; expected at most 63 bytes"));
}

TEST(Rules, AWordThatIsNotAcceptedGetsTheNearestOne) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_dataset("fashion_mnist");
  EXPECT_THAT(Only(spec).description, HasSubstr("did you mean 'fashion-mnist'?"));
  spec.mutable_data()->set_dataset("imagenet");
  EXPECT_THAT(Only(spec).description,
              HasSubstr("expected one of glyphs, fashion-mnist, mnist, cifar10, cifar100, images"));
}

TEST(Rules, UnknownEnumValuesAndFieldsAreNotPassedOver) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_normalize(static_cast<v1::Normalize>(77));
  EXPECT_THAT(Only(spec).description, HasSubstr("unknown value 77"));
  spec.mutable_data()->clear_normalize();
  spec.mutable_train()
      ->GetReflection()
      ->MutableUnknownFields(spec.mutable_train())
      ->AddVarint(99, 1);
  EXPECT_EQ(Only(spec).field, "spec.train");
}

TEST(Rules, AnIntervalNeedsASpan) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_checkpoint()->mutable_every();
  EXPECT_THAT(Only(spec).description, HasSubstr("interval without a span"));
}

TEST(Rules, ANegativeDurationIsRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_time_limit()->set_seconds(-5);
  EXPECT_EQ(Only(spec).field, "spec.time_limit");
}

TEST(Rules, AllViolationsComeAtOnceInOrder) {
  v1::JobSpec spec = ValidSpec();
  spec.set_name("");
  spec.mutable_train()->set_global_batch(0);
  spec.set_priority(5000);
  std::vector<std::string> fields;
  for (const auto& violation : ValidateRules(spec, "")) fields.push_back(violation.field);
  EXPECT_THAT(fields, ElementsAre("name", "train.global_batch", "priority"));
}

}  // namespace
}  // namespace trainyard::spec
