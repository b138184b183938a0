#include "common/spec/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/spec/interval.h"
#include "common/spec/resolve.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

v1::JobSpec Changed(const char* path, const char* value) {
  v1::JobSpec spec = *ResolveSpec(ValidSpec());
  const absl::Status status = ApplyChange(spec, path, value);
  EXPECT_TRUE(status.ok()) << status;
  return spec;
}

std::string Refused(const char* path, const char* value) {
  v1::JobSpec spec = *ResolveSpec(ValidSpec());
  const v1::JobSpec before = spec;
  const absl::Status status = ApplyChange(spec, path, value);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path << "=" << value;
  EXPECT_EQ(ErrorReason(status), error::kInvalidSpec);
  EXPECT_EQ(GetFieldViolations(status).size(), 1u);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, before));
  return std::string(status.message());
}

TEST(Change, SetsValuesOfEveryKind) {
  EXPECT_EQ(Changed("optimizer.sgd.lr", "0.2").optimizer().sgd().lr(), 0.2);
  EXPECT_EQ(Changed("optimizer.sgd.lr", "5e-4").optimizer().sgd().lr(), 5e-4);
  EXPECT_EQ(Changed("train.global_batch", "1e3").train().global_batch(), 1000);
  EXPECT_TRUE(Changed("optimizer.sgd.nesterov", "true").optimizer().sgd().nesterov());
  EXPECT_EQ(Changed("data.dataset", "mnist").data().dataset(), "mnist");
  EXPECT_EQ(Changed("data.dataset", "\"mnist\"").data().dataset(), "mnist");
  EXPECT_EQ(Changed("data.normalize", "unit").data().normalize(), v1::NORMALIZE_UNIT);
  EXPECT_EQ(Changed("checkpoint.every", "500 steps").checkpoint().every().steps(), 500);
  EXPECT_EQ(Changed("time_limit", "2 h").time_limit().seconds(), 7200);
  EXPECT_THAT(Changed("model.mlp.hidden", "[128, 64]").model().mlp().hidden(),
              ElementsAre(128, 64));
  EXPECT_EQ(Changed("name", "12").name(), "12");
}

TEST(Change, SetsOneElementOfAList) {
  EXPECT_THAT(Changed("model.mlp.input[0]", "3").model().mlp().input(), ElementsAre(3, 28, 28));
  EXPECT_THAT(Refused("model.mlp.input[3]", "1"), HasSubstr("has 3 elements"));
  EXPECT_THAT(Refused("model.mlp.input[x]", "1"), HasSubstr("is not a field path"));
}

TEST(Change, ABareValueSetsTheShorthandField) {
  EXPECT_EQ(Changed("devices", "4").devices().count(), 4);
}

TEST(Change, AnObjectSetsItsFields) {
  const v1::JobSpec spec = Changed("optimizer.sgd", R"({"lr": 0.3, "momentum": 0.9})");
  EXPECT_EQ(spec.optimizer().sgd().lr(), 0.3);
  EXPECT_EQ(spec.optimizer().sgd().momentum(), 0.9);
  EXPECT_FALSE(spec.optimizer().sgd().has_weight_decay());
}

TEST(Change, SettingAFieldOfAnotherMemberSwitchesTheOneof) {
  const v1::JobSpec spec = Changed("model.convnet.batch_norm", "true");
  EXPECT_TRUE(spec.model().has_convnet());
  EXPECT_FALSE(spec.model().has_mlp());
  EXPECT_TRUE(Changed("schedule", "cosine").schedule().has_cosine());
  EXPECT_EQ(Changed("train.steps", "100").train().steps(), 100);
}

TEST(Change, AnEmptyValueUnsetsTheField) {
  EXPECT_FALSE(Changed("devices.type", "").devices().has_type());
  EXPECT_FALSE(Changed("model.convnet.batch_norm", "").model().has_convnet());
}

TEST(Change, DeepValuesAreRefusedBeforeTheyAreBuilt) {
  for (const char* path : {"name", "tags", "optimizer.sgd", "tags[0]"}) {
    for (const int depth : {65, 1'000'000}) {
      const std::string deep = std::string(static_cast<size_t>(depth), '[') +
                               std::string(static_cast<size_t>(depth), ']');
      EXPECT_LT(Refused(path, deep.c_str()).size(), 1000u) << path;
    }
  }
  const std::string brackets(200, '[');
  EXPECT_EQ(Changed("description", absl::StrCat("\"\\\"", brackets, "\"").c_str()).description(),
            absl::StrCat("\"", brackets))
      << "brackets in a text are no levels";
}

TEST(Change, UnknownFieldsGetTheNearestName) {
  EXPECT_EQ(Refused("optimizer.sgd.lrr", "0.1"),
            "optimizer.sgd.lrr: no such field; did you mean 'lr'?");
  EXPECT_THAT(Refused("optimiser.sgd.lr", "0.1"), HasSubstr("did you mean 'optimizer'?"));
  EXPECT_THAT(Refused("optimizer.zzzzzzzz", "1"), HasSubstr("expected one of sgd"));
  EXPECT_THAT(Refused("", "1"), HasSubstr("no such field"));
}

TEST(Change, ValuesOfTheWrongKindAreRefusedWithTheRightOne) {
  EXPECT_THAT(Refused("train.global_batch", "many"), HasSubstr("expected a whole number"));
  EXPECT_THAT(Refused("train.global_batch", "1.5"), HasSubstr("expected a whole number"));
  EXPECT_THAT(Refused("train.seed", "-1"), HasSubstr("0 or more"));
  EXPECT_THAT(Refused("devices.count", "9999999999"), HasSubstr("expected a whole number"));
  EXPECT_THAT(Refused("optimizer.sgd.nesterov", "yes"), HasSubstr("expected true or false"));
  EXPECT_THAT(Refused("data.normalize", "datasett"), HasSubstr("did you mean 'dataset'?"));
  EXPECT_THAT(Refused("checkpoint.every", "often"), HasSubstr("'1 epoch'"));
  EXPECT_THAT(Refused("time_limit", "90"), HasSubstr("needs a unit"));
  EXPECT_THAT(Refused("model.mlp.hidden", "12"), HasSubstr("expected a list"));
  EXPECT_THAT(Refused("model.mlp.hidden", "[12, \"x\"]"), HasSubstr("model.mlp.hidden[1]"));
  EXPECT_THAT(Refused("model.mlp.hidden", "[12"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refused("model", "7"),
              HasSubstr("expected the fields mlp, convnet, resnet, wide_resnet, alexnet, vgg"));
  EXPECT_THAT(Refused("optimizer.sgd", R"({"lrr": 1})"), StartsWith("optimizer.sgd.lrr: no such"));
  EXPECT_THAT(Refused("name.first", "x"), HasSubstr("has no field 'first'"));
  EXPECT_THAT(Refused("name", "\xff\xfe"), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace trainyard::spec
