// Whole trainings, small: what must not depend on the number of ranks, and what must survive a
// stop.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/jpeg_files.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 8;

JobText WithBatchNorm() {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
  return job;
}

void ExpectSuccess(const std::vector<run_dir::RankResult>& results, int64_t step = kSteps) {
  for (const run_dir::RankResult& result : results) {
    EXPECT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
    EXPECT_EQ(result.step, step);
  }
}

void ExpectNear(const std::map<int64_t, double>& left, const std::map<int64_t, double>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [step, value] : left) {
    ASSERT_TRUE(right.contains(step)) << step;
    EXPECT_NEAR(value, right.at(step), 1e-5 * (1 + std::abs(value))) << "at step " << step;
  }
}

void ExpectNear(const checkpoint::TensorFile& left, const checkpoint::TensorFile& right) {
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (const auto& [name, tensor] : left.tensors) {
    ASSERT_TRUE(right.tensors.contains(name)) << name;
    const auto a = checkpoint::FloatValues(tensor).value();
    const auto b = checkpoint::FloatValues(right.tensors.at(name)).value();
    ASSERT_EQ(a.size(), b.size()) << name;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(a[i]))) << name << "[" << i << "]";
    }
  }
}

class SameResultTest : public ::testing::TestWithParam<std::tuple<const char*, bool, int>> {};

TEST_P(SameResultTest, OnAnyNumberOfRanks) {
  const auto [backend, batch_norm, world_size] = GetParam();
  const JobText job = batch_norm ? WithBatchNorm() : JobText();
  GangTrainer alone(job, 1, backend);
  ExpectSuccess(alone.Run());
  GangTrainer gang(job, world_size, backend);
  ExpectSuccess(gang.Run());
  ExpectNear(alone.Metric("train.loss"), gang.Metric("train.loss"));
  ExpectNear(alone.Metric("train.accuracy"), gang.Metric("train.accuracy"));
  ExpectNear(alone.Metric("test.loss"), gang.Metric("test.loss"));
  ExpectNear(alone.Metric("test.accuracy"), gang.Metric("test.accuracy"));
  EXPECT_EQ(alone.Metric("lr"), gang.Metric("lr"));
  ExpectNear(alone.Model(kSteps), gang.Model(kSteps));
  EXPECT_EQ(alone.Metric("train.loss").size(), static_cast<size_t>(kSteps));
}

INSTANTIATE_TEST_SUITE_P(Gangs, SameResultTest,
                         ::testing::Combine(::testing::Values("reference", "cpu"),
                                            ::testing::Bool(), ::testing::Values(2, 3)),
                         [](const auto& instance) {
                           return absl::StrCat(std::get<0>(instance.param), "_",
                                               std::get<1>(instance.param) ? "batch_norm_" : "",
                                               std::get<2>(instance.param), "_ranks");
                         });

TEST(Train, BatchNormStatisticsBelongToReplicasNotToRanks) {
  JobText one_replica = WithBatchNorm();
  one_replica.train = R"({"epochs": 2, "global_batch": 16, "replicas": 1, "seed": 5})";
  GangTrainer one(one_replica, 1), three(WithBatchNorm(), 1);
  ExpectSuccess(one.Run());
  ExpectSuccess(three.Run());
  EXPECT_GT(std::abs(one.Metric("train.loss")[2] - three.Metric("train.loss")[2]), 1e-4);
}

constexpr char kAugmented[] = R"({"dataset": "glyphs", "train_size": 50, "test_size": 17,
  "augment": {"pad_crop": "3", "flip": true, "cutout": 6, "color": {"brightness": 0.4}}})";

TEST(Train, AugmentationDoesNotDependOnTheRanks) {
  JobText job;
  job.data = kAugmented;
  GangTrainer alone(job, 1);
  ExpectSuccess(alone.Run());
  GangTrainer gang(job, 3);
  ExpectSuccess(gang.Run());
  ExpectNear(alone.Metric("train.loss"), gang.Metric("train.loss"));
  ExpectNear(alone.Model(kSteps), gang.Model(kSteps));
  GangTrainer plain(JobText(), 1);
  ExpectSuccess(plain.Run());
  EXPECT_GT(std::abs(alone.Metric("train.loss")[1] - plain.Metric("train.loss")[1]), 1e-4);
}

TEST(Train, AnAugmentedRunResumesBitForBit) {
  JobText job;
  job.data = kAugmented;
  GangTrainer whole(job, 2);
  ExpectSuccess(whole.Run());
  GangTrainer resumed(job, 2);
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 4);
  ExpectSuccess(resumed.Run());
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file)) << file;
  }
}

// 24 images of two classes, one of which is cut off, and a test split of 5 with one cut off.
class ImagesJob {
 public:
  ImagesJob() {
    for (int i = 0; i < 24; ++i) {
      Write(absl::StrCat("pets/train/", i % 2 == 0 ? "cat" : "dog", "/", i, ".jpg"),
            Image(i, i == 6));
    }
    for (int i = 0; i < 5; ++i) Write(absl::StrCat("pets/val/dog/", i, ".jpg"), Image(i, i == 3));
    job.model = R"({"convnet": {"channels": [4, 6], "input": [3, 16, 16], "classes": 2}})";
    job.train = R"({"epochs": 2, "global_batch": 6, "replicas": 3, "seed": 5})";
    job.data = R"({"dataset": "images", "path": "pets", "image_size": 16, "on_corrupt": "skip",
                   "augment": {"random_resized_crop": {}, "flip": true}})";
  }

  const std::string& path() const { return folder_.path(); }

  JobText job;

 private:
  static std::string Image(int i, bool is_cut) {
    const std::string bytes = data::SlopeJpeg(40 + i, 30, {.quality = 90});
    return is_cut ? bytes.substr(0, bytes.size() / 2) : bytes;
  }
  void Write(const std::string& name, const std::string& content) {
    TY_CHECK_OK(MakeDirectories(folder_.File(name.substr(0, name.rfind('/')))));
    folder_.Write(name, content);
  }

  testing::TempDir folder_;
};

TEST(TrainImages, SkippedSamplesAreCountedAndDoNotDependOnTheRanks) {
  const ImagesJob images;
  GangTrainer alone(images.job, 1), gang(images.job, 3);
  alone.assignment().dataset_dir = images.path();
  gang.assignment().dataset_dir = images.path();
  ExpectSuccess(alone.Run(), 8);
  ExpectSuccess(gang.Run(), 8);
  ExpectNear(alone.Metric("train.loss"), gang.Metric("train.loss"));
  ExpectNear(alone.Model(8), gang.Model(8));
  // Once an epoch, at the same steps.
  const auto skipped = alone.Metric("train.skipped");
  EXPECT_EQ(skipped.size(), 2U);
  for (const auto& [step, count] : skipped) EXPECT_EQ(count, 1) << step;
  EXPECT_EQ(gang.Metric("train.skipped"), skipped);
  EXPECT_EQ(alone.Metric("test.skipped").at(8), 1);
  ExpectNear(alone.Metric("test.loss"), gang.Metric("test.loss"));
}

TEST(TrainImages, ACorruptSampleFailsTheJobUnlessItIsToBeSkipped) {
  ImagesJob images;
  images.job.data = R"({"dataset": "images", "path": "pets", "image_size": 16,
                        "normalize": "unit"})";
  GangTrainer trainer(images.job, 1);
  trainer.assignment().dataset_dir = images.path();
  const run_dir::RankResult result = trainer.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError);
  EXPECT_EQ(result.reason, "CORRUPT_FILE");
  EXPECT_THAT(result.message, HasSubstr("pets/train/cat/6.jpg' is corrupt: byte "));
}

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

INSTANTIATE_TEST_SUITE_P(Backends, ResumeTest, ::testing::Values("reference", "cpu"),
                         [](const auto& instance) { return std::string(instance.param); });

// Every optimizer, with and without what may go with it, as a spec has it.
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
    // Adam divides by roots of tiny squares: what sums round differently shows more than with SGD.
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

TEST(Train, TheAverageOfTheWeightsIsEvaluatedAndSavedAsAModel) {
  JobText job = WithBatchNorm();
  job.optimizer = R"({"sgd": {"lr": 0.05}, "ema_decay": 0.9})";
  GangTrainer trainer(job, 2, "cpu");
  ExpectSuccess(trainer.Run());
  EXPECT_NE(trainer.Metric("test.ema_loss"), trainer.Metric("test.loss"));
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
  GangTrainer trainer(JobText(), 2);
  ASSERT_TRUE(MakeDirectories(trainer.dir().ControlDir()).ok());
  ASSERT_TRUE(ReplaceFile(trainer.dir().CheckpointRequestPath(), "1\n").ok());
  ExpectSuccess(trainer.Run());
  EXPECT_THAT(checkpoint::ListCheckpoints(trainer.dir().CheckpointsDir()), ElementsAre(1, 4, 8));
  EXPECT_EQ(run_dir::ReadProgress(trainer.dir(), 0)->checkpoint_request, 1);
  EXPECT_EQ(run_dir::ReadProgress(trainer.dir(), 1)->checkpoint_request, 1);
}

TEST(Train, ASignalToAnyRankMakesRankZeroWriteACheckpoint) {
  GangTrainer trainer(JobText(), 2);
  trainer.signals(1).checkpoint_requests = 1;
  ExpectSuccess(trainer.Run());
  EXPECT_THAT(checkpoint::ListCheckpoints(trainer.dir().CheckpointsDir()), ElementsAre(1, 4, 8));
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

run_dir::RankResult Fail(const JobText& job, const std::string& backend = "reference") {
  GangTrainer trainer(job, 1, backend);
  const run_dir::RankResult result = trainer.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError) << result.message;
  // As text: a metric may be NaN, which is not equal to itself.
  EXPECT_EQ(run_dir::EncodeRankResult(run_dir::ReadRankResult(trainer.dir(), 0).value()),
            run_dir::EncodeRankResult(result));
  return result;
}

TEST(TrainFailure, ADivergedLossNamesStepAndLearningRate) {
  JobText job;
  job.optimizer = R"({"sgd": {"lr": 1000, "momentum": 0.9}})";
  job.train = R"({"steps": 200, "global_batch": 16})";
  const run_dir::RankResult result = Fail(job, "cpu");
  EXPECT_EQ(result.reason, "LOSS_NOT_FINITE");
  EXPECT_THAT(result.message, HasSubstr(absl::StrCat(" at step ", result.step,
                                                     "; lower optimizer.sgd.lr (now 1000)")));
}

TEST(TrainFailure, ADivergedLossNamesTheRateOfItsOptimizer) {
  JobText job;
  job.optimizer = R"({"adamw": {"lr": 1000, "weight_decay": 1}})";
  job.train = R"({"steps": 200, "global_batch": 16})";
  EXPECT_THAT(Fail(job, "cpu").message, HasSubstr("lower optimizer.adamw.lr (now 1000)"));
}

TEST(TrainFailure, AMissingDataSetIsNamed) {
  JobText job;
  job.data = R"({"dataset": "mnist"})";
  EXPECT_EQ(Fail(job).reason, "DATASET_NOT_FOUND");
}

TEST(TrainFailure, OtherDataThanTheSpecSaysIsRefused) {
  JobText job;
  job.data = R"({"dataset": "glyphs", "train_size": 50, "digest": "xxh3-128:00"})";
  const run_dir::RankResult result = Fail(job);
  EXPECT_THAT(result.message,
              HasSubstr("spec.data.digest: is 'xxh3-128:00', but dataset 'glyphs'"));
}

TEST(TrainFailure, AModelThatDoesNotFitTheDataIsRefused) {
  JobText job;
  job.model = R"({"mlp": {"input": [3, 32, 32], "classes": 4}})";
  const std::string message = Fail(job).message;
  EXPECT_THAT(message, HasSubstr("has input [3, 32, 32]"));
  EXPECT_THAT(message, HasSubstr("has 4 classes"));
}

TEST(TrainFailure, ABadSpecTellsAllViolations) {
  JobText job;
  job.train = R"({"epochs": 0, "global_batch": -1})";
  const run_dir::RankResult result = Fail(job);
  EXPECT_EQ(result.reason, "INVALID_SPEC");
  EXPECT_THAT(result.message, HasSubstr("spec.train.epochs"));
  EXPECT_THAT(result.message, HasSubstr("spec.train.global_batch"));
}

TEST(TrainFailure, AnUnknownBackendIsNamed) {
  EXPECT_THAT(Fail(JobText(), "abacus").message, HasSubstr("abacus"));
}

TEST(TrainFailure, MoreRanksThanReplicasAreRefused) {
  GangTrainer trainer(JobText(), 4);
  for (const run_dir::RankResult& result : trainer.Run()) {
    EXPECT_EQ(result.outcome, Outcome::kUserError);
    EXPECT_THAT(result.message, HasSubstr("3 replicas cannot occupy 4 devices"));
  }
}

}  // namespace
}  // namespace trainyard::trainer
