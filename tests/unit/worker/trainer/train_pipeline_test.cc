// Jobs with stages, through the whole trainer: what a pipeline trains is what one rank trains.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;

constexpr char kStages[] = R"(, "devices": {"count": 2}, "stages": {"cuts": ["conv2"]})";

JobText Bitwise(bool batch_norm) {
  JobText job;
  job.model = batch_norm ? R"({"convnet": {"channels": [4, 6], "batch_norm": true}})"
                         : R"({"convnet": {"channels": [4, 6]}})";
  job.train =
      R"({"epochs": 2, "global_batch": 16, "replicas": 3, "seed": 5, "reproducibility": "REPRODUCIBILITY_BITWISE"})";
  return job;
}

void ExpectSuccess(const std::vector<run_dir::RankResult>& results) {
  for (const run_dir::RankResult& result : results) {
    ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  }
}

// 50 samples in steps of 16.
constexpr int64_t kSteps = 8;

TEST(TrainPipelines, EndWithTheBytesOfOneRank) {
  for (const bool batch_norm : {false, true}) {
    JobText job = Bitwise(batch_norm);
    GangTrainer alone(job, 1, "cpu");
    ExpectSuccess(alone.Run());
    job.more = kStages;
    GangTrainer pipeline(job, 2, "cpu");
    const auto results = pipeline.Run();
    ExpectSuccess(results);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(pipeline.CheckpointBytes(kSteps, file), alone.CheckpointBytes(kSteps, file))
          << file;
    }
    EXPECT_EQ(pipeline.Metric("train.loss"), alone.Metric("train.loss"));
    EXPECT_EQ(pipeline.Metric("test.accuracy"), alone.Metric("test.accuracy"));
    EXPECT_EQ(results[0].metrics.at("train.loss"), results[1].metrics.at("train.loss"));
  }
}

TEST(TrainPipelines, GoOnFromACheckpointOfOneRank) {
  JobText job = Bitwise(true);
  GangTrainer alone(job, 1, "cpu");
  ExpectSuccess(alone.Run());
  JobText half = job;
  half.train.replace(half.train.find("2"), 1, "1");
  GangTrainer first(half, 1, "cpu");
  ExpectSuccess(first.Run());
  job.more = kStages;
  GangTrainer second(job, 2, "cpu");
  second.assignment().resume_from =
      checkpoint::CheckpointPath(first.dir().CheckpointsDir(), kSteps / 2);
  ExpectSuccess(second.Run());
  EXPECT_EQ(second.CheckpointBytes(kSteps, "model.safetensors"),
            alone.CheckpointBytes(kSteps, "model.safetensors"));
}

TEST(TrainPipelines, TrainInMicrobatches) {
  JobText job;
  job.train = R"({"epochs": 2, "global_batch": 16, "replicas": 1, "seed": 5})";
  GangTrainer alone(job, 1, "cpu");
  ExpectSuccess(alone.Run());
  job.more = R"(, "devices": {"count": 3}, "stages": {"count": 3, "microbatches": 5})";
  GangTrainer pipeline(job, 3, "cpu");
  const auto results = pipeline.Run();
  ExpectSuccess(results);
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
