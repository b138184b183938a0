// Tests small trainings as a whole: their reports, and when they evaluate, save and stop.
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
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSubsetOf;

TEST(Train, TheLossFallsAndTheResultTellsTheLastMetrics) {
  JobText job;
  job.data = R"({"dataset": "glyphs", "train_size": 200, "test_size": 50})";
  job.train = R"({"steps": 30, "global_batch": 20, "replicas": 1})";
  GangTrainer trainer(job, 1, "cpu");
  const auto results = trainer.Run();
  ExpectSuccess(results, 30);
  const auto loss = trainer.Metric("train.loss");
  EXPECT_LT(loss.at(30), 0.98 * loss.at(1));
  EXPECT_EQ(results[0].metrics.at("train.loss"), loss.at(30));
  EXPECT_EQ(results[0].metrics.at("test.accuracy"), trainer.Metric("test.accuracy").at(30));
  EXPECT_EQ(results[0].metrics.at("test.top5"), trainer.Metric("test.top5").at(30));
  EXPECT_GE(results[0].metrics.at("test.top5"), results[0].metrics.at("test.accuracy"));
  const auto progress = run_dir::ReadProgress(trainer.dir(), 0);
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->state, run_dir::Progress::State::kFinished);
  EXPECT_EQ(progress->step, 30);
  EXPECT_EQ(progress->total_steps, 30);
  EXPECT_EQ(progress->steps_per_epoch, 10);
  EXPECT_EQ(progress->epochs, 3);
  EXPECT_EQ(progress->last_checkpoint_step, 30);
  EXPECT_GT(progress->planned_bytes, 0);
  EXPECT_THAT(progress->data_digest, HasSubstr("glyphs-v1:"));
  EXPECT_THAT(progress->model_digest, HasSubstr("xxh3-128:"));
  EXPECT_EQ(run_dir::ReadRankResult(trainer.dir(), 0).value(), results[0]);
}

TEST(Train, CheckpointsAndEvaluationsComeAtTheirIntervals) {
  JobText job;
  job.more = R"(, "checkpoint": {"every": {"steps": 3}}, "evaluate": {"every": {"steps": "5"}})";
  GangTrainer trainer(job, 2);
  ExpectSuccess(trainer.Run());
  EXPECT_THAT(checkpoint::ListCheckpoints(trainer.dir().CheckpointsDir()), ElementsAre(3, 6, 8));
  EXPECT_THAT(trainer.Metric("test.loss"), ElementsAre(::testing::Key(5), ::testing::Key(8)));
}

// Their number depends on what they cost.
TEST(Train, AutomaticCheckpointsOfAShortJobComeWithItsEvaluations) {
  JobText job;
  job.more =
      R"(, "checkpoint": {"every": {"automatic": true}}, "evaluate": {"every": {"steps": 2}})";
  GangTrainer trainer(job, 2);
  ExpectSuccess(trainer.Run());
  const std::vector<int64_t> written = checkpoint::ListCheckpoints(trainer.dir().CheckpointsDir());
  EXPECT_THAT(written, IsSubsetOf({2, 4, 6, 8}));
  EXPECT_THAT(written, Contains(8));
}

TEST(Train, TheAverageOfTheWeightsIsEvaluatedAndSavedAsAModel) {
  JobText job = WithBatchNorm();
  job.optimizer = R"({"sgd": {"lr": 0.05}, "ema_decay": 0.9})";
  GangTrainer trainer(job, 2, "cpu");
  ExpectSuccess(trainer.Run());
  EXPECT_NE(trainer.Metric("test.ema_loss"), trainer.Metric("test.loss"));
  EXPECT_EQ(trainer.Metric("test.ema_top5").size(), trainer.Metric("test.top5").size());
  const checkpoint::TensorFile model = trainer.Model(kSteps);
  const auto average =
      checkpoint::DecodeSafetensors(trainer.CheckpointBytes(kSteps, "ema.safetensors"));
  ASSERT_TRUE(average.ok()) << average.status();
  ASSERT_EQ(average->tensors.size(), model.tensors.size());
  for (const auto& [name, tensor] : model.tensors) {
    ASSERT_TRUE(average->tensors.contains(name)) << name;
    const bool is_buffer = name.find("running_") != std::string::npos;
    EXPECT_EQ(average->tensors.at(name).data == tensor.data, is_buffer) << name;
  }
}

TEST(Train, TheWeightsDoNotDependOnWhetherTheyAreAveraged) {
  JobText job = WithBatchNorm();
  GangTrainer plain(job, 1, "cpu");
  job.optimizer = R"({"sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": true}, "ema_decay": 0.9})";
  GangTrainer averaged(job, 1, "cpu");
  ExpectSuccess(plain.Run());
  ExpectSuccess(averaged.Run());
  EXPECT_EQ(plain.CheckpointBytes(kSteps, "model.safetensors"),
            averaged.CheckpointBytes(kSteps, "model.safetensors"));
  EXPECT_EQ(plain.Metric("test.loss"), averaged.Metric("test.loss"));
}

TEST(Train, RatesFollowTheLinearScalingRule) {
  JobText job;
  job.optimizer = R"({"sgd": {"lr": 0.05}, "lr_base_batch": 64})";
  GangTrainer trainer(job, 1);
  ExpectSuccess(trainer.Run());
  EXPECT_EQ(trainer.Metric("lr").at(kSteps), 0.05 * 16 / 64);
}

TEST(Train, OneStoppedRankStopsAllAtTheSameStepAndARestartGoesOn) {
  GangTrainer whole(JobText(), 2);
  ExpectSuccess(whole.Run());
  GangTrainer stopped(JobText(), 2);
  stopped.signals(1).stop = true;
  for (const run_dir::RankResult& result : stopped.Run()) {
    EXPECT_EQ(result.outcome, Outcome::kStopped) << result.message;
    EXPECT_EQ(result.step, 1);
  }
  EXPECT_THAT(checkpoint::ListCheckpoints(stopped.dir().CheckpointsDir()), ElementsAre(1));
  stopped.signals(1).stop = false;
  ExpectSuccess(stopped.Run());
  EXPECT_EQ(stopped.Metric("train.loss"), whole.Metric("train.loss"));
  EXPECT_EQ(stopped.CheckpointBytes(kSteps, "model.safetensors"),
            whole.CheckpointBytes(kSteps, "model.safetensors"));
}

TEST(Train, ARequestedCheckpointIsWrittenAtTheNextStepAndAnswered) {
  JobText job;
  job.more = R"(, "checkpoint": {"every": {"epochs": 1}})";
  GangTrainer trainer(job, 2);
  ASSERT_TRUE(MakeDirectories(trainer.dir().ControlDir()).ok());
  ASSERT_TRUE(ReplaceFile(trainer.dir().CheckpointRequestPath(), "1\n").ok());
  ExpectSuccess(trainer.Run());
  EXPECT_THAT(checkpoint::ListCheckpoints(trainer.dir().CheckpointsDir()), ElementsAre(1, 4, 8));
  EXPECT_EQ(run_dir::ReadProgress(trainer.dir(), 0)->checkpoint_request, 1);
  EXPECT_EQ(run_dir::ReadProgress(trainer.dir(), 1)->checkpoint_request, 1);
}

TEST(Train, ASignalToAnyRankMakesRankZeroWriteACheckpoint) {
  JobText job;
  job.more = R"(, "checkpoint": {"every": {"epochs": 1}})";
  GangTrainer trainer(job, 2);
  trainer.signals(1).checkpoint_requests = 1;
  ExpectSuccess(trainer.Run());
  EXPECT_THAT(checkpoint::ListCheckpoints(trainer.dir().CheckpointsDir()), ElementsAre(1, 4, 8));
}

}  // namespace
}  // namespace trainyard::trainer
