// Tests jobs with stages, through the whole trainer: a pipeline trains the same as one rank.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;

// Ranks 0 and 1 are the stages of one pipeline, 2 and 3 of the other.
constexpr char kGrid[] = R"(, "devices": {"count": 4}, "stages": {"cuts": ["conv2"]})";
constexpr char kStages[] = R"(, "devices": {"count": 2}, "stages": {"cuts": ["conv2"]})";

JobText Bitwise(bool batch_norm) {
  JobText job;
  job.model = batch_norm ? R"({"convnet": {"channels": [4, 6], "batch_norm": true}})"
                         : R"({"convnet": {"channels": [4, 6]}})";
  job.train =
      R"({"epochs": 2, "global_batch": 16, "replicas": 3, "seed": 5, "reproducibility": "REPRODUCIBILITY_BITWISE"})";
  return job;
}

void ExpectPipelineSuccess(const std::vector<run_dir::RankResult>& results) {
  for (const run_dir::RankResult& result : results) {
    ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  }
}

// 50 samples in steps of 16.
constexpr int64_t kPipelineSteps = 8;

// Runs the gang, and expects that it ends as one rank did, with the same metrics on all ranks.
void ExpectEndsAs(GangTrainer& alone, GangTrainer& gang) {
  const auto results = gang.Run();
  ExpectPipelineSuccess(results);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(gang.CheckpointBytes(kPipelineSteps, file),
              alone.CheckpointBytes(kPipelineSteps, file))
        << file;
  }
  EXPECT_EQ(gang.Metric("train.loss"), alone.Metric("train.loss"));
  EXPECT_EQ(gang.Metric("test.accuracy"), alone.Metric("test.accuracy"));
  for (const run_dir::RankResult& result : results) {
    EXPECT_EQ(result.metrics.at("train.loss"), results[0].metrics.at("train.loss"));
    EXPECT_EQ(result.metrics.at("test.loss"), results[0].metrics.at("test.loss"));
  }
}

TEST(TrainPipelines, EndWithTheBytesOfOneRank) {
  for (const bool batch_norm : {false, true}) {
    JobText job = Bitwise(batch_norm);
    GangTrainer alone(job, 1, "cpu");
    ExpectPipelineSuccess(alone.Run());
    job.more = kStages;
    GangTrainer pipeline(job, 2, "cpu");
    ExpectEndsAs(alone, pipeline);
  }
}

TEST(TrainPipelines, GoOnFromACheckpointOfOneRank) {
  JobText job = Bitwise(true);
  GangTrainer alone(job, 1, "cpu");
  ExpectPipelineSuccess(alone.Run());
  JobText half = job;
  half.train.replace(half.train.find('2'), 1, "1");
  GangTrainer first(half, 1, "cpu");
  ExpectPipelineSuccess(first.Run());
  job.more = kStages;
  GangTrainer second(job, 2, "cpu");
  second.assignment().resume_from =
      checkpoint::CheckpointPath(first.dir().CheckpointsDir(), kPipelineSteps / 2);
  ExpectPipelineSuccess(second.Run());
  EXPECT_EQ(second.CheckpointBytes(kPipelineSteps, "model.safetensors"),
            alone.CheckpointBytes(kPipelineSteps, "model.safetensors"));
}

// The last step of an epoch has two rows, so the second pipeline has none.
TEST(TrainPipelines, InAGridEndWithTheBytesOfOneRank) {
  for (const bool batch_norm : {false, true}) {
    for (const int replicas : {2, 5}) {
      SCOPED_TRACE(replicas);
      JobText job = Bitwise(batch_norm);
      job.train.replace(job.train.find('3'), 1, absl::StrCat(replicas));
      GangTrainer alone(job, 1, "cpu");
      ExpectPipelineSuccess(alone.Run());
      job.more = kGrid;
      GangTrainer grid(job, 4, "cpu");
      ExpectEndsAs(alone, grid);
    }
  }
}

// With the first optimizer, each rank of a stage keeps a part, and gathers the rest for evaluations
// and checkpoints. The second optimizer needs norms over all of a layer's gradients.
TEST(TrainPipelines, InAGridEndWithTheBytesOfOneRankByOtherOptimizers) {
  for (const char* optimizer : {R"({"adamw": {"lr": 0.01}, "ema_decay": 0.9})",
                                R"({"lamb": {"lr": 0.01}, "ema_decay": 0.9})"}) {
    JobText job = Bitwise(true);
    job.optimizer = optimizer;
    GangTrainer alone(job, 1, "cpu");
    ExpectPipelineSuccess(alone.Run());
    job.more = kGrid;
    GangTrainer grid(job, 4, "cpu");
    ExpectPipelineSuccess(grid.Run());
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "ema.safetensors"}) {
      EXPECT_EQ(grid.CheckpointBytes(kPipelineSteps, file),
                alone.CheckpointBytes(kPipelineSteps, file))
          << file << " of " << optimizer;
      EXPECT_FALSE(grid.CheckpointBytes(kPipelineSteps, file).empty()) << file;
    }
    EXPECT_EQ(grid.Metric("test.ema_loss"), alone.Metric("test.ema_loss"));
  }
}

// Between two cuts there may be no parameters, and so no gradients to sum.
TEST(TrainPipelines, InAGridMayHaveAStageWithoutParameters) {
  JobText job = Bitwise(false);
  GangTrainer alone(job, 1, "cpu");
  ExpectPipelineSuccess(alone.Run());
  job.more = R"(, "devices": {"count": 6}, "stages": {"cuts": ["relu1", "conv2"]})";
  GangTrainer grid(job, 6, "cpu");
  ExpectPipelineSuccess(grid.Run());
  EXPECT_EQ(grid.CheckpointBytes(kPipelineSteps, "model.safetensors"),
            alone.CheckpointBytes(kPipelineSteps, "model.safetensors"));
}

TEST(TrainPipelines, InAGridStopTogetherAndGoOnAsOneRank) {
  JobText job = Bitwise(true);
  GangTrainer alone(job, 1, "cpu");
  ExpectPipelineSuccess(alone.Run());
  JobText in_grid = job;
  in_grid.more = kGrid;
  GangTrainer grid(in_grid, 4, "cpu");
  grid.signals(3).stop = true;
  for (const run_dir::RankResult& result : grid.Run()) {
    EXPECT_EQ(result.outcome, Outcome::kStopped) << result.message;
    EXPECT_EQ(result.step, 1);
  }
  GangTrainer one(job, 1, "cpu");
  one.assignment().resume_from = checkpoint::CheckpointPath(grid.dir().CheckpointsDir(), 1);
  ExpectPipelineSuccess(one.Run());
  grid.signals(3).stop = false;
  ExpectPipelineSuccess(grid.Run());
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(one.CheckpointBytes(kPipelineSteps, file),
              alone.CheckpointBytes(kPipelineSteps, file))
        << file;
    EXPECT_EQ(grid.CheckpointBytes(kPipelineSteps, file),
              alone.CheckpointBytes(kPipelineSteps, file))
        << file;
  }
}

// Without bitwise, and without batch norm, the replicas of a pipeline are cut into microbatches.
TEST(TrainPipelines, InAGridTrainWhatOneRankDoes) {
  for (const bool batch_norm : {false, true}) {
    JobText job;
    job.model = Bitwise(batch_norm).model;
    GangTrainer alone(job, 1, "cpu");
    ExpectPipelineSuccess(alone.Run());
    job.more = kGrid;
    GangTrainer grid(job, 4, "cpu");
    ExpectPipelineSuccess(grid.Run());
    const auto expected = alone.Metric("train.loss");
    const auto losses = grid.Metric("train.loss");
    ASSERT_EQ(losses.size(), expected.size());
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 1e-3) << step;
    EXPECT_NEAR(grid.Metric("test.loss").at(kPipelineSteps),
                alone.Metric("test.loss").at(kPipelineSteps), 1e-3);
  }
}

TEST(TrainPipelines, InAGridTellEveryRanksReplicasAndStage) {
  JobText job;
  job.more = kGrid;
  GangTrainer grid(job, 4, "cpu");
  ExpectPipelineSuccess(grid.Run());
  const auto progress = run_dir::ReadProgress(grid.dir(), 0);
  ASSERT_TRUE(progress.ok()) << progress.status();
  const std::vector<run_dir::RankHosting> expected = {
      {.rank = 0, .first_replica = 0, .replicas = 2, .stage = 0},
      {.rank = 1, .first_replica = 0, .replicas = 2, .stage = 1},
      {.rank = 2, .first_replica = 2, .replicas = 1, .stage = 0},
      {.rank = 3, .first_replica = 2, .replicas = 1, .stage = 1}};
  EXPECT_EQ(progress->hosting, expected);
}

TEST(TrainPipelines, TrainInMicrobatches) {
  JobText job;
  job.train = R"({"epochs": 2, "global_batch": 16, "replicas": 1, "seed": 5})";
  GangTrainer alone(job, 1, "cpu");
  ExpectPipelineSuccess(alone.Run());
  job.more = R"(, "devices": {"count": 3}, "stages": {"count": 3, "microbatches": 5})";
  GangTrainer pipeline(job, 3, "cpu");
  const auto results = pipeline.Run();
  ExpectPipelineSuccess(results);
  for (const run_dir::RankResult& result : results) {
    EXPECT_GT(result.metrics.at("pipeline.step_seconds"), 0);
    EXPECT_GE(result.metrics.at("pipeline.waited"), 0);
    EXPECT_LT(result.metrics.at("pipeline.waited"), 1);
    EXPECT_GT(result.metrics.at("pipeline.predicted_bubble"), 0);
  }
  const auto expected = alone.Metric("train.loss");
  for (const auto& [step, loss] : pipeline.Metric("train.loss")) {
    EXPECT_NEAR(loss, expected.at(step), 1e-3) << step;
  }
}

}  // namespace
}  // namespace trainyard::trainer
