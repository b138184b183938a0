// Tests the files of a checkpoint, and the memory plan that is reported before a run.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/base/files.h"
#include "common/spec/defaults.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/report/plan_report.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::trainer {
namespace {

using ::testing::HasSubstr;

CompiledModel Compile(const JobText& job) {
  const auto spec = ParseSpec(job.Spec());
  auto model = CompileModel(*spec, {.backend = "reference"});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(TrainingState, ASnapshotHoldsEveryTensorUnderItsName) {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
  const CompiledModel model = Compile(job);
  const auto snapshot = TakeSnapshot(*model.executable, 12, 3, {.seed = 9, .replicas = 3});
  ASSERT_TRUE(snapshot.ok());
  const auto files = EncodeSnapshot(*snapshot);
  ASSERT_EQ(files.size(), 3U);
  const auto tensors = checkpoint::DecodeSafetensors(files[0].content);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_TRUE(tensors->tensors.contains("conv1.weight"));
  EXPECT_TRUE(tensors->tensors.contains("bn2.running_var"));
  EXPECT_EQ(tensors->tensors.at("conv1.weight").shape, (std::vector<int64_t>{4, 1, 3, 3}));
  EXPECT_EQ(files[1].name, "optimizer.safetensors");
  EXPECT_THAT(files[2].content, HasSubstr("\"step\": 12"));
  EXPECT_THAT(files[2].content, HasSubstr("\"epoch\": 3"));
  EXPECT_THAT(files[2].content, HasSubstr("\"seed\": 9"));
}

StateRecord Record() {
  return {.step = 312,
          .epoch = 1,
          .identity = {.seed = 7,
                       .replicas = 3,
                       .global_batch = 64,
                       .data_digest = "glyphs-v1:split=train,size=50",
                       .model_digest = "xxh3-128:00112233445566778899aabbccddeeff",
                       .spec_json = R"({"train": {"epochs": "3"}, "name": "golden"})",
                       .is_bitwise = true,
                       .hosting = {2, 1},
                       .device_types = {"cpu", "h200"}},
          .version = "0.1.0",
          .evaluation = RecordedEvaluation{.metrics = {{"test.accuracy", 0.1 + 0.2},
                                                       {"test.ema_loss", std::nan("")},
                                                       {"test.loss", 2.116333222555833},
                                                       {"test.top5", 1}},
                                           .samples = 16,
                                           .skipped = 1,
                                           .data_digest = "glyphs-v1:split=test,size=17",
                                           .backend = "cpu",
                                           .ranks = 2,
                                           .threads = 4}};
}

TEST(StateFile, IsWrittenByteForByteAndComesBackToTheBit) {
  const std::string path = testing::SourcePath("tests/data/run_directory/state.json");
  EXPECT_EQ(EncodeState(Record()), ReadFile(path).value_or(""));
  const auto read = ReadState(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 312);
  EXPECT_EQ(read->identity.seed, 7U);
  EXPECT_TRUE(read->identity.is_bitwise);
  EXPECT_EQ(read->identity.hosting, (std::vector<int>{2, 1}));
  EXPECT_EQ(read->identity.device_types, (std::vector<std::string>{"cpu", "h200"}));
  EXPECT_EQ(read->identity.spec_json, R"({"name":"golden","train":{"epochs":"3"}})");
  EXPECT_EQ(read->evaluation, Record().evaluation);
}

TEST(StateFile, OfAnOlderTrainerHasNoEvaluation) {
  const testing::TempDir folder;
  const auto read = ReadState(folder.Write("state.json", R"({"format": 1, "step": 5})"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 5);
  EXPECT_FALSE(read->evaluation.has_value());
  EXPECT_EQ(read->identity.spec_json, "");
  EXPECT_FALSE(read->identity.is_bitwise);
  EXPECT_TRUE(read->identity.hosting.empty());
  for (const char* text : {"", "[]", "{}", R"({"step": -1})", R"({"step": "5"})"}) {
    EXPECT_TRUE(absl::IsDataLoss(ReadState(folder.Write("bad.json", text)).status())) << text;
  }
}

// A checkpoint that is written while the training continues has the values of the moment between
// two steps.
TEST(TrainingState, ASnapshotDoesNotFollowTheTraining) {
  const CompiledModel model = Compile(JobText());
  std::vector<float> values(
      static_cast<size_t>(engine::ElementCount(model.executable->state()[0].shape)), 1.0F);
  ASSERT_TRUE(model.executable->WriteState(0, values).ok());
  const auto snapshot = TakeSnapshot(*model.executable, 1, 0, {});
  ASSERT_TRUE(snapshot.ok());
  const std::string before = EncodeSnapshot(*snapshot)[0].content;
  values.assign(values.size(), 2.0F);
  ASSERT_TRUE(model.executable->WriteState(0, values).ok());
  EXPECT_EQ(EncodeSnapshot(*snapshot)[0].content, before);
  EXPECT_NE(EncodeSnapshot(*TakeSnapshot(*model.executable, 1, 0, {}))[0].content, before);
}

TEST(TrainingState, TheModelDigestTellsArchitecturesApart) {
  JobText other;
  other.model = R"({"convnet": {"channels": [4, 7]}})";
  const std::string digest = ModelDigest(*Compile(JobText()).executable);
  EXPECT_EQ(digest, ModelDigest(*Compile(JobText()).executable));
  EXPECT_NE(digest, ModelDigest(*Compile(other).executable));
}

v1::JobSpec SgdSpec(double lr) {
  v1::JobSpec spec;
  spec.mutable_train()->set_epochs(3);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(lr);
  spec::FillDefaults(spec);
  return spec;
}

TEST(ModelSetup, EpochsOfTheScheduleBecomeSteps) {
  v1::JobSpec spec = SgdSpec(0.4);
  spec.mutable_schedule()->set_warmup_epochs(0.5);
  spec.mutable_schedule()->mutable_step()->add_milestones(1);
  spec.mutable_schedule()->mutable_step()->add_milestones(2.25);
  spec.mutable_schedule()->mutable_step()->set_gamma(0.2);
  const engine::Schedule schedule = MakeSchedule(spec, 100, 300);
  EXPECT_EQ(schedule.warmup_steps, 50);
  EXPECT_EQ(schedule.milestones, (std::vector<int64_t>{100, 225}));
  EXPECT_EQ(schedule.total_steps, 300);
  EXPECT_EQ(engine::LearningRate(schedule, 299), 0.4 * 0.2 * 0.2);
}

TEST(ModelSetup, AWarmUpMayBeGivenInSteps) {
  v1::JobSpec spec = SgdSpec(0.4);
  spec.mutable_schedule()->set_warmup_steps(20);
  const engine::Schedule schedule = MakeSchedule(spec, 100, 300);
  EXPECT_EQ(schedule.warmup_steps, 20);
  EXPECT_DOUBLE_EQ(engine::LearningRate(schedule, 9), 0.4 * 10 / 20);
  EXPECT_DOUBLE_EQ(engine::LearningRate(schedule, 20), 0.4);
}

TEST(ModelSetup, PolynomialAndLinearScaling) {
  v1::JobSpec spec = SgdSpec(0.1);
  spec.mutable_train()->set_global_batch(512);
  spec.mutable_optimizer()->set_lr_base_batch(256);
  spec.mutable_schedule()->set_warmup_epochs(1);
  spec.mutable_schedule()->mutable_polynomial()->set_final_lr(0.01);
  spec.mutable_schedule()->mutable_polynomial()->set_power(2);
  const engine::Schedule schedule = MakeSchedule(spec, 100, 300);
  EXPECT_DOUBLE_EQ(engine::LearningRate(schedule, 0), 0.2 / 100);
  EXPECT_DOUBLE_EQ(engine::LearningRate(schedule, 100), 0.2);
  EXPECT_DOUBLE_EQ(engine::LearningRate(schedule, 200), 0.02 + 0.18 / 4);
  EXPECT_DOUBLE_EQ(engine::LearningRate(schedule, 300), 0.02);
}

// Every field of every rule differs from its default, so that one which is forgotten is seen.
TEST(ModelSetup, EveryFieldOfEachOptimizerReachesTheEngine) {
  using Rule = engine::OptimizerSpec::Rule;
  v1::OptimizerSpec spec;
  spec.set_clip_norm(0.7);
  spec.set_ema_decay(0.8);
  v1::SgdOptimizer& sgd = *spec.mutable_sgd();
  sgd.set_momentum(0.1);
  sgd.set_nesterov(true);
  sgd.set_weight_decay(0.2);
  sgd.set_decay_bias_and_norm(false);
  engine::OptimizerSpec made = MakeOptimizer(spec);
  EXPECT_EQ(made.rule, Rule::kSgd);
  EXPECT_EQ(made.momentum, 0.1);
  EXPECT_TRUE(made.nesterov);
  EXPECT_EQ(made.weight_decay, 0.2);
  EXPECT_FALSE(made.decay_bias_and_norm);
  EXPECT_EQ(made.clip_norm, 0.7);
  EXPECT_EQ(made.ema_decay, 0.8);

  v1::AdamWOptimizer& adamw = *spec.mutable_adamw();
  adamw.add_betas(0.3);
  adamw.add_betas(0.4);
  adamw.set_eps(0.5);
  adamw.set_weight_decay(0.2);
  adamw.set_decay_bias_and_norm(false);
  made = MakeOptimizer(spec);
  EXPECT_EQ(made.rule, Rule::kAdamW);
  EXPECT_EQ(made.beta1, 0.3);
  EXPECT_EQ(made.beta2, 0.4);
  EXPECT_EQ(made.eps, 0.5);
  EXPECT_EQ(made.weight_decay, 0.2);
  EXPECT_FALSE(made.decay_bias_and_norm);

  v1::LarsOptimizer& lars = *spec.mutable_lars();
  lars.set_momentum(0.1);
  lars.set_nesterov(true);
  lars.set_weight_decay(0.2);
  lars.set_trust_coefficient(0.6);
  lars.set_eps(0.5);
  lars.set_decay_bias_and_norm(true);
  made = MakeOptimizer(spec);
  EXPECT_EQ(made.rule, Rule::kLars);
  EXPECT_EQ(made.momentum, 0.1);
  EXPECT_TRUE(made.nesterov);
  EXPECT_EQ(made.weight_decay, 0.2);
  EXPECT_EQ(made.trust_coefficient, 0.6);
  EXPECT_EQ(made.eps, 0.5);
  EXPECT_TRUE(made.decay_bias_and_norm);

  v1::LambOptimizer& lamb = *spec.mutable_lamb();
  lamb.add_betas(0.3);
  lamb.add_betas(0.4);
  lamb.set_eps(0.5);
  lamb.set_weight_decay(0.2);
  lamb.set_decay_bias_and_norm(true);
  made = MakeOptimizer(spec);
  EXPECT_EQ(made.rule, Rule::kLamb);
  EXPECT_EQ(made.beta1, 0.3);
  EXPECT_EQ(made.beta2, 0.4);
  EXPECT_EQ(made.eps, 0.5);
  EXPECT_EQ(made.weight_decay, 0.2);
  EXPECT_TRUE(made.decay_bias_and_norm);
}

TEST(ModelSetup, ABatchThatIsComputedAtOnceNeedsMoreRowsThanReplicas) {
  JobText coupled;
  coupled.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
  EXPECT_EQ(Compile(JobText()).max_rows, 16);
  EXPECT_EQ(Compile(coupled).max_rows, 6);
}

TEST(PlanReport, CountsParametersAndBytes) {
  JobText job;
  job.model = R"({"convnet": {}})";
  job.more = R"(, "devices": {"count": 2})";
  const auto json = ReportPlan(job.Spec(), {.backend = "reference", .format = PlanFormat::kJson});
  ASSERT_TRUE(json.ok()) << json.status();
  // 32 * 9 + 32, 64 * 32 * 9 + 64, 10 * 3136 + 10
  EXPECT_THAT(*json, HasSubstr("\"parameters\":50186,"));
  EXPECT_THAT(*json, HasSubstr("\"total\":"));
  const auto text = ReportPlan(job.Spec(), {.backend = "reference"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("50,186 parameters, 11 rows a device"));
  EXPECT_THAT(*text, HasSubstr("activations"));
}

TEST(PlanReport, ABadSpecIsAnError) {
  EXPECT_TRUE(absl::IsInvalidArgument(ReportPlan("{}", {}).status()));
}

}  // namespace
}  // namespace trainyard::trainer
