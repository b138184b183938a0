// Tests whole trainings in bf16: they learn what those in f32 learn, and resume exactly.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/engine/bf16_testing.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;

struct Case {
  const char* model;
  const char* epochs;  // until it has learned
  double accuracy_min;
};
const Case kConvnet = {R"({"convnet": {"channels": [16, 32], "batch_norm": true}})", "4", 0.8};
const Case kMlp = {R"({"mlp": {"hidden": [256]}})", "20", 0.65};

class Bf16Training : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!engine::testing::Has(engine::Precision::kBf16)) {
      GTEST_SKIP() << "this machine has no AVX512_BF16";
    }
  }

  // Returns the accuracy on the test split at the end.
  static double Accuracy(const std::string& precision) {
    JobText job;
    job.model = GetParam().model;
    job.data = R"({"dataset": "glyphs", "train_size": 4000, "test_size": 2000})";
    job.train =
        absl::StrCat(R"({"epochs": )", GetParam().epochs,
                     R"(, "global_batch": 32, "replicas": 1, "seed": 5, "precision": "PRECISION_)",
                     absl::AsciiStrToUpper(precision), R"("})");
    job.optimizer = R"({"adamw": {"lr": 0.003}})";
    job.more = R"(, "schedule": {"cosine": {}})";
    GangTrainer trainer(job, 1, "cpu");
    EXPECT_EQ(trainer.Run()[0].outcome, Outcome::kSucceeded);
    return trainer.Metric("test.accuracy").rbegin()->second;
  }
};

TEST_P(Bf16Training, IsAsAccurateAsF32) {
  const double f32 = Accuracy("f32");
  const double bf16 = Accuracy("bf16");
  EXPECT_GT(f32, GetParam().accuracy_min);
  EXPECT_NEAR(bf16, f32, 0.01);
}

TEST_P(Bf16Training, ResumesBitForBit) {
  constexpr int64_t kSteps = 8;
  JobText job;
  job.model = GetParam().model;
  job.train =
      R"({"epochs": 2, "global_batch": 16, "replicas": 3, "seed": 5, "precision": "PRECISION_BF16"})";
  GangTrainer whole(job, 2, "cpu"), resumed(job, 2, "cpu");
  EXPECT_EQ(whole.Run()[0].outcome, Outcome::kSucceeded);
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 4);
  EXPECT_EQ(resumed.Run()[0].outcome, Outcome::kSucceeded);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file)) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Bf16Training, ::testing::Values(kConvnet, kMlp),
                         [](const auto& instance) {
                           return instance.index == 0 ? "convnet" : "mlp";
                         });

}  // namespace
}  // namespace trainyard::trainer
