#include "common/spec/resolve.h"
#include "common/spec/data_checks.h"

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
  EXPECT_EQ(spec->train().precision(), v1::PRECISION_AUTO)
      << "the server decides it when it places the job";
  EXPECT_TRUE(spec->optimizer().sgd().has_momentum());
  EXPECT_FALSE(spec->optimizer().sgd().nesterov());
  EXPECT_TRUE(spec->schedule().has_constant());
  EXPECT_EQ(spec->devices().count(), 1);
  EXPECT_EQ(IntervalText(spec->checkpoint().every()), "auto");
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

TEST(Resolve, NesterovOfLarsNeedsMomentum) {
  v1::JobSpec spec = ValidSpec();
  v1::LarsOptimizer& lars = *spec.mutable_optimizer()->mutable_lars();
  lars.set_lr(1);
  lars.set_nesterov(true);
  EXPECT_THAT(Fields(spec), IsEmpty());  // the default is 0.9
  lars.set_momentum(0);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.optimizer.lars.nesterov"));
}

TEST(Resolve, FillsDefaultsOfEveryOptimizer) {
  v1::JobSpec spec = ValidSpec();
  EXPECT_TRUE(ResolveSpec(spec)->optimizer().sgd().decay_bias_and_norm());
  EXPECT_EQ(ResolveSpec(spec)->optimizer().clip_norm(), 0);
  spec.mutable_optimizer()->mutable_adamw()->set_lr(0.1);
  const v1::AdamWOptimizer adamw = ResolveSpec(spec)->optimizer().adamw();
  EXPECT_THAT(adamw.betas(), ElementsAre(0.9, 0.999));
  EXPECT_EQ(adamw.eps(), 1e-8);
  EXPECT_EQ(adamw.weight_decay(), 0.01);
  EXPECT_TRUE(adamw.decay_bias_and_norm());
  spec.mutable_optimizer()->mutable_lamb()->set_lr(0.1);
  const v1::LambOptimizer lamb = ResolveSpec(spec)->optimizer().lamb();
  EXPECT_EQ(lamb.eps(), 1e-6);
  EXPECT_FALSE(lamb.decay_bias_and_norm());
  spec.mutable_optimizer()->mutable_lars()->set_lr(0.1);
  const v1::LarsOptimizer lars = ResolveSpec(spec)->optimizer().lars();
  EXPECT_EQ(lars.momentum(), 0.9);
  EXPECT_EQ(lars.trust_coefficient(), 0.001);
  EXPECT_FALSE(lars.decay_bias_and_norm());
  spec.mutable_schedule()->mutable_polynomial();
  EXPECT_EQ(ResolveSpec(spec)->schedule().polynomial().power(), 1);
}

TEST(Resolve, OptimizersAreCheckedByTheirRules) {
  v1::JobSpec spec = ValidSpec();
  v1::AdamWOptimizer& adamw = *spec.mutable_optimizer()->mutable_adamw();
  spec.mutable_optimizer()->set_clip_norm(-1);
  spec.mutable_optimizer()->set_ema_decay(1);
  adamw.add_betas(1);
  adamw.set_eps(0);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.optimizer.adamw.lr", "spec.optimizer.adamw.betas",
                                        "spec.optimizer.adamw.eps", "spec.optimizer.clip_norm",
                                        "spec.optimizer.ema_decay"));
  adamw.add_betas(0.9);
  EXPECT_THAT(Fields(spec), ::testing::Contains("spec.optimizer.adamw.betas[0]"));
}

TEST(Resolve, StagesHaveNoNormOfAllGradients) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_devices()->set_count(2);
  spec.mutable_stages()->set_count(2);
  EXPECT_THAT(Fields(spec), IsEmpty());
  spec.mutable_optimizer()->set_clip_norm(1);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.optimizer.clip_norm"));
  spec.mutable_stages()->set_count(1);
  EXPECT_THAT(Fields(spec), IsEmpty());
}

TEST(Resolve, StagesHaveNoLossScale) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_devices()->set_count(2);
  spec.mutable_stages()->set_count(2);
  spec.mutable_train()->set_precision(v1::PRECISION_F16);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.precision"));
  spec.mutable_stages()->set_count(1);
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

TEST(Resolve, WarmUpInStepsTakesThePlaceOfThatInEpochs) {
  v1::JobSpec spec = ValidSpec();
  EXPECT_TRUE(ResolveSpec(spec)->schedule().has_warmup_epochs());
  spec.mutable_schedule()->set_warmup_steps(100);
  const auto resolved = ResolveSpec(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->schedule().warmup_steps(), 100);
  EXPECT_FALSE(resolved->schedule().has_warmup_epochs());
}

// Two epochs of 313 steps.
TEST(Resolve, WarmUpInStepsIsShorterThanTheTraining) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_schedule()->set_warmup_steps(626);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.schedule.warmup_steps"));
  spec.mutable_schedule()->set_warmup_steps(625);
  EXPECT_THAT(Fields(spec), IsEmpty());
  spec.mutable_train()->set_steps(625);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.schedule.warmup_steps"));
}

TEST(Resolve, TheModelFitsTheDataSet) {
  v1::JobSpec spec = ValidSpec();
  auto* model = spec.mutable_model()->mutable_convnet();
  for (const int64_t size : {3, 32, 32}) model->add_input(size);
  model->set_classes(5);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.convnet.input", "spec.model.convnet.classes"));
}

TEST(Resolve, DeepResnetsOfCifarNeedItsStem) {
  v1::JobSpec spec = ValidSpec();
  v1::ResnetModel& resnet = *spec.mutable_model()->mutable_resnet();
  resnet.set_depth(56);
  for (const int64_t size : {1, 28, 28}) resnet.add_input(size);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.resnet.stem"));
  resnet.set_stem(v1::STEM_CIFAR);
  EXPECT_THAT(Fields(spec), ElementsAre());
}

TEST(Resolve, EveryModelOfImagesHasTheirSize) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_dataset("images");
  spec.mutable_data()->set_path("pets");
  spec.mutable_model()->mutable_resnet();
  EXPECT_THAT(Fields(spec), ElementsAre());
  spec.mutable_data()->set_image_size(64);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.resnet.input"));
}

TEST(Resolve, ATrainerReadsWhatWasNeverSubmitted) {
  v1::JobSpec spec = ValidSpec();
  spec.clear_name();
  spec.mutable_devices()->set_count(4);
  const auto resolved = ResolveForTrainer(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->train().replicas(), 0);
  EXPECT_EQ(resolved->train().global_batch(), 64);
  spec.mutable_train()->set_global_batch(0);
  EXPECT_EQ(GetFieldViolations(ResolveForTrainer(spec).status())[0].field,
            "spec.train.global_batch");
}

TEST(Resolve, ASubsetHasNoMoreSamplesThanThereAre) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_dataset("mnist");
  spec.mutable_data()->set_train_size(60'000);
  spec.mutable_data()->set_test_size(10'001);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.test_size"));
  spec.mutable_data()->set_test_size(100);
  EXPECT_THAT(Fields(spec), ElementsAre());
  // A step takes no sample twice.
  spec.mutable_data()->set_train_size(10);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.global_batch"));
}

TEST(Resolve, CropsHaveASmallestAreaBelowTheLargest) {
  v1::JobSpec spec = ValidSpec();
  auto* crop = spec.mutable_data()->mutable_augment()->mutable_random_resized_crop();
  EXPECT_THAT(Fields(spec), ElementsAre());
  crop->set_max_area(0.05);  // the smallest is 0.08 where it is not given
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.augment.random_resized_crop.min_area"));
  crop->set_min_area(0.05);
  EXPECT_THAT(Fields(spec), ElementsAre());
}

TEST(Resolve, WithoutAugmentationNoneIsFilledIn) {
  const auto resolved = ResolveSpec(ValidSpec());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->data().has_augment());
}

TEST(Resolve, ImagesNeedAPathAndAModelOfTheirSize) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_dataset("images");
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.path", "spec.model.mlp.input"));
  spec.mutable_data()->set_path("flowers");
  spec.mutable_data()->set_image_size(64);
  for (const int64_t size : {3, 64, 64}) spec.mutable_model()->mutable_convnet()->add_input(size);
  EXPECT_THAT(Fields(spec), ElementsAre());
  spec.mutable_data()->set_resize(63);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.resize"));
}

v1::JobSpec TextSpec() {
  v1::JobSpec spec = ValidSpec();
  v1::Gpt2Model& gpt2 = *spec.mutable_model()->mutable_gpt2();
  gpt2.set_context(64);
  gpt2.set_vocabulary(65);
  spec.mutable_data()->set_dataset("tinyshakespeare");
  return spec;
}

TEST(Resolve, PathsStayBelowTheFolderOfDataSets) {
  v1::JobSpec spec = TextSpec();
  spec.mutable_data()->set_dataset("tokens");
  for (const char* path : {"..", "../secret", "a/../../b", "/etc"}) {
    spec.mutable_data()->set_path(path);
    EXPECT_THAT(Fields(spec), ElementsAre("spec.data.path")) << path;
  }
  spec.mutable_data()->set_path("a/..b");
  EXPECT_THAT(Fields(spec), IsEmpty());
  spec.mutable_init()->set_checkpoint("a/../../b");
  EXPECT_THAT(Fields(spec), ElementsAre("spec.init.checkpoint"));
}

TEST(Resolve, LanguageModelsNeedTokensAndTheOthersImages) {
  v1::JobSpec spec = TextSpec();
  EXPECT_THAT(Fields(spec), IsEmpty());
  EXPECT_EQ(ResolveSpec(spec)->model().gpt2().layers(), 12);
  spec.mutable_data()->set_dataset("glyphs");
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.dataset"));
  EXPECT_THAT(std::string(ResolveSpec(spec).status().message()),
              HasSubstr("'glyphs' has images, but gpt2 reads tokens; use tokens or "
                        "tinyshakespeare"));
  spec = ValidSpec();
  spec.mutable_data()->set_dataset("tinyshakespeare");
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.mlp"));
  spec.mutable_data()->set_dataset("tokens");
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.path", "spec.model.mlp"));
  spec = TextSpec();
  spec.mutable_data()->set_dataset("tokens");
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.path"));
  spec.mutable_data()->set_path("webtext");
  EXPECT_THAT(Fields(spec), IsEmpty());
}

TEST(Resolve, HeadsDivideTheWidth) {
  v1::JobSpec spec = TextSpec();
  spec.mutable_model()->mutable_gpt2()->set_heads(5);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.gpt2.heads"));
  EXPECT_THAT(std::string(ResolveSpec(spec).status().message()),
              HasSubstr("5 heads cannot share a width of 768 evenly"));
  spec.mutable_model()->mutable_gpt2()->set_heads(0);  // breaks a rule, and divides nothing
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.gpt2.heads"));
}

TEST(Resolve, TokensTakeNothingThatIsMeantForImages) {
  v1::JobSpec spec = TextSpec();
  v1::DataSpec& data = *spec.mutable_data();
  data.mutable_augment()->set_pad_crop(4);
  data.mutable_augment()->set_flip(true);
  data.mutable_augment()->mutable_color()->set_contrast(0.4);
  data.mutable_augment()->set_cutout(8);
  data.set_normalize(v1::NORMALIZE_UNIT);
  data.set_train_size(100);
  data.set_path("text");
  data.set_image_size(28);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.path", "spec.data.image_size",
                                        "spec.data.augment.pad_crop", "spec.data.augment.flip",
                                        "spec.data.augment.color", "spec.data.augment.cutout",
                                        "spec.data.normalize", "spec.data.train_size"));
}

TEST(Resolve, TheNetworkFitsTheCharactersOfTinyShakespeare) {
  v1::JobSpec spec = TextSpec();
  v1::Gpt2Model& gpt2 = *spec.mutable_model()->mutable_gpt2();
  gpt2.set_vocabulary(64);
  gpt2.set_context(111'540);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.model.gpt2.vocabulary", "spec.model.gpt2.context"));
  gpt2.set_vocabulary(65);
  gpt2.set_context(111'539);
  // 1,003,853 characters have a successor among those to train on: 9 samples of so many.
  spec.mutable_train()->set_global_batch(10);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.global_batch"));
  spec.mutable_train()->set_global_batch(9);
  EXPECT_THAT(Fields(spec), IsEmpty());
  EXPECT_EQ(TrainSplitSize(*ResolveSpec(spec)), 9);
  gpt2.set_context(64);
  EXPECT_EQ(TrainSplitSize(*ResolveSpec(spec)), 15'685);
}

TEST(Resolve, OnlyImagesHaveAPathASizeAndCorruptFiles) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->set_path("flowers");
  spec.mutable_data()->set_image_size(28);
  spec.mutable_data()->set_resize(28);
  spec.mutable_data()->set_on_corrupt(v1::ON_CORRUPT_SKIP);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.data.path", "spec.data.image_size",
                                        "spec.data.resize", "spec.data.on_corrupt"));
}

TEST(Resolve, BatchNormNeedsAReplicasSamplesAtOnce) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_train()->set_global_batch(64);
  spec.mutable_train()->set_replicas(2);
  spec.mutable_memory()->set_microbatch(16);
  EXPECT_THAT(Fields(spec), IsEmpty());  // a perceptron
  spec.mutable_model()->mutable_convnet()->set_batch_norm(true);
  v1::JobSpec resolved;
  const auto violations = ResolveInto(spec, resolved);
  ASSERT_THAT(violations, testing::SizeIs(1));
  EXPECT_EQ(violations[0].field, "spec.memory.microbatch");
  EXPECT_THAT(violations[0].description,
              testing::AllOf(HasSubstr("16 is less than the 32 samples of a replica"),
                             HasSubstr("set train.replicas to 4")));
  spec.mutable_memory()->set_microbatch(32);
  EXPECT_THAT(Fields(spec), IsEmpty());
}

TEST(Resolve, GradientsTravelInBf16OnlyWhereLibrariesSumThem) {
  v1::JobSpec spec = ValidSpec();
  EXPECT_EQ(ResolveSpec(spec)->train().exchange_precision(), v1::PRECISION_F32);
  spec.mutable_train()->set_exchange_precision(v1::PRECISION_BF16);
  EXPECT_THAT(Fields(spec), IsEmpty());
  for (const v1::Precision other : {v1::PRECISION_F16, v1::PRECISION_TF32, v1::PRECISION_AUTO}) {
    spec.mutable_train()->set_exchange_precision(other);
    EXPECT_THAT(Fields(spec), ElementsAre("spec.train.exchange_precision"));
  }
  spec.mutable_train()->set_exchange_precision(v1::PRECISION_BF16);
  spec.mutable_memory()->set_shard_optimizer(true);
  EXPECT_THAT(Fields(spec), ElementsAre("spec.train.exchange_precision"));
  spec.clear_memory();
  spec.mutable_train()->set_reproducibility(v1::REPRODUCIBILITY_BITWISE);
  v1::JobSpec resolved;
  const auto violations = ResolveInto(spec, resolved);
  ASSERT_THAT(violations, testing::SizeIs(1));
  EXPECT_THAT(violations[0].description, HasSubstr("beside reproducibility: bitwise"));
}

TEST(Resolve, ATimeLimitOfNothingIsRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_time_limit();
  EXPECT_THAT(Fields(spec), ElementsAre("spec.time_limit"));
}

TEST(Resolve, AJobIsKeptForEverOrForATime) {
  v1::JobSpec spec = ValidSpec();
  for (const char* good : {"forever", "30 d", "12h"}) {
    spec.set_retain(good);
    EXPECT_THAT(Fields(spec), testing::IsEmpty()) << good;
  }
  for (const char* bad : {"0 d", "30", "always"}) {
    spec.set_retain(bad);
    EXPECT_THAT(Fields(spec), ElementsAre("spec.retain")) << bad;
  }
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
