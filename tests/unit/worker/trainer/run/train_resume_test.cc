// Tests small trainings as a whole: which state must survive a stop, bit for bit.
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ResumeTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ResumeTest, AResumedRunEqualsTheUndisturbedOneBitForBit) {
  GangTrainer whole(WithBatchNorm(), 2, GetParam());
  ExpectSuccess(whole.Run());
  GangTrainer resumed(WithBatchNorm(), 2, GetParam());
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 4);
  ExpectSuccess(resumed.Run());
  const auto expected = whole.Metric("train.loss");
  const auto got = resumed.Metric("train.loss");
  EXPECT_EQ(got.begin()->first, 5) << "metrics go on after the checkpoint only";
  EXPECT_EQ(got.size(), 4U);
  for (const auto& [step, loss] : got) EXPECT_EQ(loss, expected.at(step)) << step;
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file)) << file;
  }
}

TEST(Train, NothingLeftToTrainAfterTheCheckpointOfAnotherJobIsNoSuccess) {
  GangTrainer whole(WithBatchNorm(), 2);
  ExpectSuccess(whole.Run());
  JobText job = WithBatchNorm();
  job.more += absl::StrCat(R"(, "from_checkpoint": "jobs/1/checkpoints/)", kSteps, R"(")");
  GangTrainer next(job, 2);
  next.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), kSteps);
  for (const run_dir::RankResult& result : next.Run()) {
    EXPECT_EQ(result.outcome, Outcome::kUserError);
    EXPECT_THAT(result.message, HasSubstr("nothing is left to train; did you mean init: {job: 1/"));
  }
}

// This is the only small model with dropout. Its masks follow from seed, step and sample.
TEST(Train, ARunWithDropoutResumesBitForBit) {
  JobText job;
  job.model = R"({"googlenet": {"stem": "STEM_CIFAR", "input": [1, 28, 28], "classes": 10}})";
  job.data = R"({"dataset": "glyphs", "train_size": 12, "test_size": 4})";
  job.train = R"({"steps": 3, "global_batch": 4, "replicas": 2, "seed": 5})";
  job.more = R"(, "checkpoint": {"every": {"steps": 2}}, "evaluate": {"every": {"steps": 9}})";
  GangTrainer whole(job, 2, "cpu");
  ExpectSuccess(whole.Run(), 3);
  GangTrainer resumed(job, 2, "cpu");
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 2);
  ExpectSuccess(resumed.Run(), 3);
  EXPECT_EQ(resumed.CheckpointBytes(3, "model.safetensors"),
            whole.CheckpointBytes(3, "model.safetensors"));
  EXPECT_EQ(resumed.Metric("train.loss").at(3), whole.Metric("train.loss").at(3));
}

INSTANTIATE_TEST_SUITE_P(Backends, ResumeTest, ::testing::Values("reference", "cpu"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Train, AnAugmentedRunResumesBitForBit) {
  const JobText job = WithAugmentation();
  GangTrainer whole(job, 2);
  ExpectSuccess(whole.Run());
  GangTrainer resumed(job, 2);
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 4);
  ExpectSuccess(resumed.Run());
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file)) << file;
  }
}

// Every optimizer, with and without its options, as in a spec.
struct OptimizerCase {
  const char* name;
  const char* optimizer;
  bool has_average = false;
};

const OptimizerCase kOptimizers[] = {
    {"sgd_clipped", R"({"sgd": {"lr": 0.05, "momentum": 0.9}, "clip_norm": 0.5})"},
    {"sgd_average", R"({"sgd": {"lr": 0.05}, "ema_decay": 0.9, "lr_base_batch": "32"})", true},
    {"adamw", R"({"adamw": {"lr": 0.01}})"},
    {"adamw_all",
     R"({"adamw": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1,
         "decay_bias_and_norm": false}, "clip_norm": 1, "ema_decay": 0.99})",
     true},
    {"lars", R"({"lars": {"lr": 2, "weight_decay": 0.001, "trust_coefficient": 0.01}})"},
    {"lars_all",
     R"({"lars": {"lr": 2, "momentum": 0.8, "nesterov": true, "trust_coefficient": 0.01},
         "clip_norm": 2, "ema_decay": 0.5})",
     true},
    {"lamb", R"({"lamb": {"lr": 0.02}})"},
    {"lamb_all",
     R"({"lamb": {"lr": 0.02, "betas": [0.9, 0.99], "decay_bias_and_norm": true},
         "clip_norm": 1, "ema_decay": 0.7})",
     true},
};

JobText WithOptimizer(const OptimizerCase& optimizer) {
  JobText job = WithBatchNorm();
  job.optimizer = optimizer.optimizer;
  job.more = R"(, "schedule": {"warmup_epochs": 0.5, "polynomial": {"power": 2}},
                  "checkpoint": {"every": {"steps": 3}}, "evaluate": {"every": {"steps": 4}})";
  return job;
}

class OptimizerTest : public ::testing::TestWithParam<std::tuple<OptimizerCase, const char*>> {};

TEST_P(OptimizerTest, AResumedRunEqualsTheUndisturbedOneBitForBit) {
  const auto& [optimizer, backend] = GetParam();
  const JobText job = WithOptimizer(optimizer);
  GangTrainer whole(job, 2, backend);
  ExpectSuccess(whole.Run());
  std::vector<std::string> files = {"model.safetensors", "optimizer.safetensors", "state.json"};
  std::vector<std::string> metrics = {"train.loss", "train.accuracy", "lr", "test.loss",
                                      "test.accuracy"};
  if (optimizer.has_average) {
    files.push_back("ema.safetensors");
    metrics.insert(metrics.end(), {"test.ema_loss", "test.ema_accuracy"});
  }
  for (const int64_t step : {3, 6}) {
    GangTrainer resumed(job, 2, backend);
    resumed.assignment().resume_from =
        checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), step);
    ExpectSuccess(resumed.Run());
    for (const std::string& metric : metrics) {
      std::map<int64_t, double> expected = whole.Metric(metric);
      ASSERT_FALSE(expected.empty()) << metric;
      expected.erase(expected.begin(), expected.upper_bound(step));
      EXPECT_EQ(resumed.Metric(metric), expected) << metric << " after step " << step;
    }
    for (const std::string& file : files) {
      EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file))
          << file << " after step " << step;
    }
  }
}

TEST_P(OptimizerTest, TheResultDoesNotDependOnTheNumberOfRanks) {
  const auto& [optimizer, backend] = GetParam();
  const JobText job = WithOptimizer(optimizer);
  GangTrainer alone(job, 1, backend), gang(job, 3, backend);
  ExpectSuccess(alone.Run());
  ExpectSuccess(gang.Run());
  EXPECT_EQ(alone.Metric("lr"), gang.Metric("lr"));
  const std::map<int64_t, double> expected = alone.Metric("train.loss");
  const std::map<int64_t, double> got = gang.Metric("train.loss");
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  for (const auto& [step, loss] : expected) {
    // Adam divides by roots of tiny squares, so it shows differences in the rounding of sums more
    // clearly than SGD.
    EXPECT_NEAR(got.at(step), loss, 2e-3 * std::abs(loss)) << "at step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerTest,
                         ::testing::Combine(::testing::ValuesIn(kOptimizers),
                                            ::testing::Values("reference", "cpu")),
                         [](const auto& instance) {
                           return absl::StrCat(std::get<0>(instance.param).name, "_",
                                               std::get<1>(instance.param));
                         });

TEST(Train, ACheckpointOfAnotherOptimizerIsRefusedWithWhatItLacks) {
  GangTrainer trainer(JobText(), 1);
  ExpectSuccess(trainer.Run());
  JobText averaged, adam;
  averaged.optimizer =
      R"({"sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": true}, "ema_decay": 0.9})";
  adam.optimizer = R"({"adamw": {"lr": 0.05}})";
  for (const auto& [job, expected] : {std::pair(averaged, "set optimizer.ema_decay to 0"),
                                      std::pair(adam, "has no tensor 'exp_avg.conv1.weight'")}) {
    GangTrainer resumed(job, 1);
    resumed.assignment().resume_from =
        checkpoint::CheckpointPath(trainer.dir().CheckpointsDir(), kSteps);
    const run_dir::RankResult result = resumed.Run()[0];
    EXPECT_EQ(result.outcome, Outcome::kUserError);
    EXPECT_THAT(result.message, HasSubstr(expected));
  }
}

TEST(Train, ADamagedCheckpointIsPassedOver) {
  GangTrainer trainer(JobText(), 1);
  ExpectSuccess(trainer.Run());
  const std::string newest =
      checkpoint::CheckpointPath(trainer.dir().CheckpointsDir(), kSteps) + "/model.safetensors";
  std::string bytes = ReadFile(newest).value();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(ReplaceFile(newest, bytes).ok());
  GangTrainer resumed(JobText(), 1);
  resumed.assignment().resume_from =
      checkpoint::CheckpointPath(trainer.dir().CheckpointsDir(), kSteps);
  ExpectSuccess(resumed.Run());
  EXPECT_EQ(resumed.Metric("train.loss").begin()->first, 5);
}

TEST(Train, ResumingWithoutAnyValidCheckpointFailsWithItsPath) {
  GangTrainer trainer(JobText(), 1);
  trainer.assignment().resume_from = "/does/not/exist/step-4";
  const run_dir::RankResult result = trainer.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError);
  EXPECT_THAT(result.message, HasSubstr("/does/not/exist/step-4"));
}

TEST(Train, ADamagedCopyOfTheOnlyCheckpointIsTriedAgain) {
  GangTrainer trainer(JobText(), 1);
  ExpectSuccess(trainer.Run());
  const std::string copy = trainer.dir().root() + "/resume/step-4";
  std::filesystem::create_directories(trainer.dir().root() + "/resume");
  std::filesystem::copy(checkpoint::CheckpointPath(trainer.dir().CheckpointsDir(), kSteps), copy);
  ASSERT_TRUE(ReplaceFile(copy + "/model.safetensors", "rotten").ok());
  GangTrainer resumed(JobText(), 1);
  resumed.assignment().resume_from = copy;
  const run_dir::RankResult result = resumed.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kTransient) << "the next attempt fetches another copy";
  EXPECT_EQ(result.reason, "CORRUPT_FILE");
}

TEST(Train, ACheckpointOfAnotherModelNamesTheTensor) {
  GangTrainer trainer(JobText(), 1);
  ExpectSuccess(trainer.Run());
  JobText wider;
  wider.model = R"({"convnet": {"channels": [5, 6]}})";
  GangTrainer resumed(wider, 1);
  resumed.assignment().resume_from =
      checkpoint::CheckpointPath(trainer.dir().CheckpointsDir(), kSteps);
  const run_dir::RankResult result = resumed.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError);
  EXPECT_THAT(result.message, HasSubstr("tensor 'conv1.weight' has shape"));
}

TEST(Train, ARunThatResumesAtItsEndOnlyEvaluates) {
  GangTrainer trainer(JobText(), 1);
  ExpectSuccess(trainer.Run());
  GangTrainer again(JobText(), 1);
  again.assignment().resume_from =
      checkpoint::CheckpointPath(trainer.dir().CheckpointsDir(), kSteps);
  const auto results = again.Run();
  ExpectSuccess(results);
  EXPECT_EQ(results[0].metrics.at("test.loss"), trainer.Metric("test.loss").at(kSteps));
  EXPECT_THAT(again.Metric("train.loss"), IsEmpty());
}

}  // namespace
}  // namespace trainyard::trainer
