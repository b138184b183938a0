// Tests trainings that fail: the first error says what to do about it.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::HasSubstr;

run_dir::RankResult Fail(const JobText& job, const std::string& backend = "reference",
                         const std::string& dataset_dir = "") {
  GangTrainer trainer(job, 1, backend);
  if (!dataset_dir.empty()) trainer.assignment().dataset_dir = dataset_dir;
  run_dir::RankResult result = trainer.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError) << result.message;
  // Metrics are compared as text, because a metric may be NaN, which is not equal to itself.
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

// Each rank sees the gradients of its blocks. A rank that sees one that is not finite informs the
// others.
TEST(TrainFailure, ADivergedLossOfAGangIsNamedByEveryRank) {
  JobText job;
  job.optimizer = R"({"sgd": {"lr": 1000, "momentum": 0.9}})";
  job.train = R"({"steps": 200, "global_batch": 16})";
  GangTrainer gang(job, 2, "cpu");
  const std::vector<run_dir::RankResult> results = gang.Run();
  for (const run_dir::RankResult& result : results) {
    EXPECT_EQ(result.outcome, Outcome::kUserError) << result.message;
    EXPECT_EQ(result.reason, "LOSS_NOT_FINITE") << result.message;
    EXPECT_EQ(result.step, results[0].step);
    EXPECT_THAT(result.message, HasSubstr(absl::StrCat(" at step ", result.step,
                                                       "; lower optimizer.sgd.lr (now 1000)")));
  }
}

// If a checkpoint is due after every step, the failure is reported before one is written.
TEST(TrainFailure, ADivergedGangWritesNoCheckpointOfIt) {
  JobText job;
  job.optimizer = R"({"sgd": {"lr": 1000, "momentum": 0.9}})";
  job.train = R"({"steps": 200, "global_batch": 16})";
  job.more = R"(, "checkpoint": {"every": {"steps": 1}})";
  GangTrainer gang(job, 2, "cpu");
  const std::vector<run_dir::RankResult> results = gang.Run();
  for (const run_dir::RankResult& result : results) {
    EXPECT_EQ(result.reason, "LOSS_NOT_FINITE") << result.message;
  }
  std::vector<std::string> damaged;
  const auto latest = checkpoint::FindLatestValid(gang.dir().CheckpointsDir(), damaged);
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_LT(latest->step, results[0].step);
}

TEST(TrainFailure, RanksThatAreNoWholePipelinesAreRefusedBeforeAnythingIsLoaded) {
  JobText job;
  job.data = R"({"dataset": "mnist"})";  // this data set does not exist here
  job.more = R"(, "devices": {"count": 2}, "stages": {"count": 2})";
  EXPECT_THAT(Fail(job).message, HasSubstr("1 ranks; expected a multiple of the 2 stages"));
}

// A rank that waits for a stage of the other pipeline, or for its neighbour, ends with it.
TEST(TrainFailure, ADivergedLossOfAGridEndsEveryRank) {
  JobText job;
  job.optimizer = R"({"sgd": {"lr": 1000, "momentum": 0.9}})";
  job.train = R"({"steps": 200, "global_batch": 16})";
  job.more = R"(, "devices": {"count": 4}, "stages": {"count": 2})";
  GangTrainer grid(job, 4, "cpu");
  int named = 0;
  for (const run_dir::RankResult& result : grid.Run()) {
    if (result.reason == "LOSS_NOT_FINITE") {
      ++named;
    } else {
      EXPECT_EQ(result.reason, "PEER_LOST") << result.message;
    }
  }
  EXPECT_GE(named, 1);
}

TEST(TrainFailure, AMissingDataSetIsNamed) {
  JobText job;
  job.data = R"({"dataset": "mnist"})";
  EXPECT_EQ(Fail(job).reason, "DATASET_NOT_FOUND");
}

TEST(TrainFailure, APartOfADataSetIsRefused) {
  const testing::TempDir folder;
  TY_CHECK_OK(MakeDirectories(folder.File("cifar10")));
  for (const int batch : {1, 2, 4, 5}) {
    folder.Write(absl::StrCat("cifar10/data_batch_", batch, ".bin"), std::string(3073, '\5'));
  }
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "input": [3, 32, 32]}})";
  job.data = R"({"dataset": "cifar10"})";
  const run_dir::RankResult result = Fail(job, "reference", folder.path());
  EXPECT_EQ(result.reason, "DATASET_INCOMPLETE");
  EXPECT_EQ(result.step, 0);
  EXPECT_THAT(result.message, HasSubstr("lacks data_batch_3.bin"));
}

TEST(TrainFailure, AMissingTestSplitIsRefusedBeforeTheFirstStep) {
  const testing::TempDir folder;
  TY_CHECK_OK(MakeDirectories(folder.File("cifar10")));
  for (const int batch : {1, 2, 3, 4, 5}) {
    folder.Write(absl::StrCat("cifar10/data_batch_", batch, ".bin"), std::string(3073, '\5'));
  }
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "input": [3, 32, 32]}})";
  job.data = R"({"dataset": "cifar10"})";
  job.train = R"({"steps": 3, "global_batch": 4})";
  const run_dir::RankResult result = Fail(job, "reference", folder.path());
  EXPECT_EQ(result.reason, "DATASET_NOT_FOUND");
  EXPECT_EQ(result.step, 0);
  EXPECT_THAT(result.message, HasSubstr("cifar10/test_batch.bin"));
}

TEST(TrainFailure, AFileOfWeightsThatIsMissingHasAReason) {
  JobText job;
  job.more = R"(, "init": {"checkpoint": "weights/a.safetensors"})";
  const testing::TempDir folder;
  const run_dir::RankResult result = Fail(job, "reference", folder.path());
  EXPECT_EQ(result.reason, "INIT_NOT_FOUND");
  EXPECT_THAT(result.message, HasSubstr(folder.File("weights/a.safetensors")));
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

TEST(TrainFailure, APrecisionOfGpusIsRefusedByTheCpu) {
  for (const char* precision : {"tf32", "f16"}) {
    JobText job;
    job.train = absl::StrCat(R"({"epochs": 1, "precision": "PRECISION_)",
                             absl::AsciiStrToUpper(precision), R"("})");
    const run_dir::RankResult result = Fail(job, "cpu");
    EXPECT_EQ(result.outcome, run_dir::Outcome::kUserError);
    EXPECT_THAT(result.message, HasSubstr(absl::StrCat("precision ", precision, " needs a GPU")));
  }
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
