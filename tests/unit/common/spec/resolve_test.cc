#include "common/spec/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/interval.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Fields(const v1::JobSpec& spec) {
  v1::JobSpec resolved;
  std::vector<std::string> fields;
  for (const auto& violation : ResolveInto(spec, resolved)) fields.push_back(violation.field);
  return fields;
}

TEST(Resolve, FillsDefaultsOfEveryKind) {
  const auto spec = ResolveSpec(ValidSpec());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->model().mlp().hidden(), ElementsAre(256));
  EXPECT_THAT(spec->model().mlp().input(), ElementsAre(1, 28, 28));
  EXPECT_EQ(spec->data().normalize(), v1::NORMALIZE_DATASET);
  EXPECT_TRUE(spec->data().has_digest());
  EXPECT_EQ(spec->train().global_batch(), 64);
  EXPECT_EQ(spec->train().seed(), 1u);
  EXPECT_EQ(spec->train().precision(), v1::PRECISION_F32);
  EXPECT_TRUE(spec->optimizer().sgd().has_momentum());
  EXPECT_FALSE(spec->optimizer().sgd().nesterov());
  EXPECT_TRUE(spec->schedule().has_constant());
  EXPECT_EQ(spec->devices().count(), 1);
  EXPECT_EQ(IntervalText(spec->checkpoint().every()), "1 epoch");
  EXPECT_EQ(spec->checkpoint().keep().last(), 2);
  EXPECT_EQ(IntervalText(spec->evaluate().every()), "1 epoch");
  EXPECT_EQ(spec->max_retries(), 3);
  EXPECT_EQ(FromProto(spec->on_disconnect().keep()), absl::Minutes(10));
  EXPECT_FALSE(spec->has_time_limit());
}

TEST(Resolve, LeavesWhatWasGiven) {
  v1::JobSpec spec = ValidSpec();
  spec.set_priority(0);
  spec.set_max_retries(0);
  spec.mutable_schedule()->mutable_cosine();
  spec.mutable_model()->mutable_mlp()->add_hidden(32);
  const auto resolved = ResolveSpec(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->max_retries(), 0);
  EXPECT_TRUE(resolved->schedule().has_cosine());
  EXPECT_TRUE(resolved->schedule().cosine().has_final_lr());
  EXPECT_THAT(resolved->model().mlp().hidden(), ElementsAre(32));
}

TEST(Resolve, ReplicasFollowTheDevicesWhereNobodyGaveThem) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_devices()->set_count(4);
  EXPECT_EQ(ResolveSpec(spec)->train().replicas(), 4);
  spec.mutable_train()->set_replicas(16);
  EXPECT_EQ(ResolveSpec(spec)->train().replicas(), 16);
}

TEST(Resolve, AResolvedSpecResolvesToItself) {
  const auto once = ResolveSpec(ValidSpec());
  const auto twice = ResolveSpec(*once);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*once, *twice));
}

TEST(Resolve, FewerReplicasThanDevicesAreRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_devices()->set_count(4);
  spec.mutable_train()->set_replicas(2);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.replicas"));
}

TEST(Resolve, ABatchSmallerThanTheReplicasIsRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_train()->set_replicas(8);
  spec.mutable_train()->set_global_batch(7);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.global_batch"));
}

TEST(Resolve, ABatchLargerThanTheDataIsRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_train_size(100);
  spec.mutable_train()->set_global_batch(101);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.global_batch"));
  spec.mutable_train()->set_global_batch(100);
  EXPECT_THAT(Fields(spec), IsEmpty());
}

TEST(Resolve, NesterovNeedsMomentum) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_optimizer()->mutable_sgd()->set_nesterov(true);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.optimizer.sgd.nesterov"));
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  EXPECT_THAT(Fields(spec), IsEmpty());
}

TEST(Resolve, MilestonesAscend) {
  v1::JobSpec spec = ValidSpec();
  for (const double epoch : {1.0, 1.0, 0.5}) {
    spec.mutable_schedule()->mutable_step()->add_milestones(epoch);
  }
  EXPECT_THAT(Fields(spec),
              ElementsAre("spec.schedule.step.milestones[1]", "spec.schedule.step.milestones[2]"));
}

TEST(Resolve, WarmUpIsShorterThanTheTraining) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_schedule()->set_warmup_epochs(2);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.schedule.warmup_epochs"));
  spec.mutable_schedule()->set_warmup_epochs(1.5);
  EXPECT_THAT(Fields(spec), IsEmpty());
  // 20,000 samples at 64 are 313 steps an epoch.
  spec.mutable_train()->set_steps(313);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.schedule.warmup_epochs"));
}

TEST(Resolve, TheModelFitsTheDataSet) {
  v1::JobSpec spec = ValidSpec();
  auto* model = spec.mutable_model()->mutable_convnet();
  for (const int64_t size : {3, 32, 32}) model->add_input(size);
  model->set_classes(5);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.convnet.input", "spec.model.convnet.classes"));
}

TEST(Resolve, OnlyGlyphsHaveASizeToChoose) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_dataset("mnist");
  spec.mutable_data()->set_train_size(100);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.train_size"));
}

TEST(Resolve, ATimeLimitOfNothingIsRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_time_limit();
  EXPECT_THAT(Fields(spec), ElementsAre("spec.time_limit"));
}

TEST(Resolve, AFieldThatBreaksItsRuleIsNamedOnce) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_train()->set_global_batch(0);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.global_batch"));
}

TEST(Resolve, RulesOfFieldsAndBetweenFieldsComeTogether) {
  v1::JobSpec spec = ValidSpec();
  spec.set_name("");
  spec.mutable_devices()->set_count(4);
  spec.mutable_train()->set_replicas(2);
  const auto resolved = ResolveSpec(spec);
  ASSERT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(resolved.status()), error::kInvalidSpec);
  EXPECT_EQ(GetFieldViolations(resolved.status()).size(), 2u);
  EXPECT_THAT(Fields(spec), Contains("spec.name"));
  EXPECT_THAT(std::string(resolved.status().message()), HasSubstr("2 violations"));
}

}  // namespace
}  // namespace trainyard::spec
