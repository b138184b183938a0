// Tests bitwise runs: they give the same bytes on all devices and hostings.
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/records.h"
#include "worker/trainer/report/verify_report.h"
#include "worker/trainer/run/state_file.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::trainer {
namespace {

using ::testing::HasSubstr;

// 50 samples in batches of 16: 2, 2, 2, ... rows a replica of seven, and in the last batch one for
// two of them and none for the others.
constexpr char kTrain[] = R"({"steps": 8, "global_batch": 16, "replicas": 7, "seed": 5,
                              "reproducibility": "REPRODUCIBILITY_BITWISE"})";

struct BitwiseCase {
  const char* name;
  const char* backend;
  const char* model;
  const char* optimizer;
  const char* more = "";
  bool has_average = false;
};

const BitwiseCase kCases[] = {
    {"batch_norm_sgd", "cpu", R"({"convnet": {"channels": [4, 6], "batch_norm": true}})",
     R"({"sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": true}})"},
    {"batch_norm_sgd_reference", "reference",
     R"({"convnet": {"channels": [4, 6], "batch_norm": true}})",
     R"({"sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": true}})"},
    {"residual_lars", "cpu", R"({"wide_resnet": {"depth": 10, "width": 1, "input": [1, 28, 28]}})",
     R"({"lars": {"lr": 2, "weight_decay": 0.001, "trust_coefficient": 0.01}})"},
    {"dropout_adamw_average", "cpu",
     R"({"layers": {"input": [1, 28, 28], "stack": [{"flatten": {}}, {"linear": {"features": 24}},
         {"relu": {}}, {"dropout": {"rate": 0.3}}, {"linear": {"features": 10}}]}})",
     R"({"adamw": {"lr": 0.01}, "ema_decay": 0.9})", "", true},
    {"microbatches_clipped", "cpu", R"({"mlp": {"hidden": [24]}})",
     R"({"sgd": {"lr": 0.05, "momentum": 0.9}, "clip_norm": 0.5})",
     R"(, "memory": {"microbatch": 1})"},
};

JobText JobOf(const BitwiseCase& test) {
  JobText job;
  job.model = test.model;
  job.train = kTrain;
  job.optimizer = test.optimizer;
  job.more = absl::StrCat(R"(, "checkpoint": {"every": {"steps": 3}},
                              "evaluate": {"every": {"steps": 4}})",
                          test.more);
  return job;
}

std::vector<std::string> FilesOf(const BitwiseCase& test) {
  std::vector<std::string> files = {"model.safetensors", "optimizer.safetensors"};
  if (test.has_average) files.push_back("ema.safetensors");
  return files;
}

const char* const kMetrics[] = {"train.loss", "train.accuracy", "test.loss", "test.accuracy",
                                "test.ema_loss"};

class BitwiseTest : public ::testing::TestWithParam<BitwiseCase> {};

TEST_P(BitwiseTest, EveryNumberOfRanksGivesTheSameBytes) {
  GangTrainer alone(JobOf(GetParam()), 1, GetParam().backend);
  ExpectSuccess(alone.Run());
  ASSERT_EQ(alone.Metric("train.loss").size(), static_cast<size_t>(kSteps));
  for (const int ranks : {2, 3, 4, 7}) {
    GangTrainer gang(JobOf(GetParam()), ranks, GetParam().backend);
    ExpectSuccess(gang.Run());
    for (const char* metric : kMetrics) {
      EXPECT_EQ(gang.Metric(metric), alone.Metric(metric)) << metric << " of " << ranks;
    }
    for (const std::string& file : FilesOf(GetParam())) {
      EXPECT_EQ(gang.CheckpointBytes(kSteps, file), alone.CheckpointBytes(kSteps, file))
          << file << " of " << ranks;
    }
  }
}

TEST_P(BitwiseTest, AnotherNumberOfRanksGoesOnWithTheSameBytes) {
  GangTrainer alone(JobOf(GetParam()), 1, GetParam().backend);
  ExpectSuccess(alone.Run());
  GangTrainer first(JobOf(GetParam()), 3, GetParam().backend);
  ExpectSuccess(first.Run());
  GangTrainer second(JobOf(GetParam()), 2, GetParam().backend);
  second.assignment().resume_from = checkpoint::CheckpointPath(first.dir().CheckpointsDir(), 3);
  ExpectSuccess(second.Run());
  GangTrainer third(JobOf(GetParam()), 4, GetParam().backend);
  third.assignment().resume_from = checkpoint::CheckpointPath(second.dir().CheckpointsDir(), 6);
  ExpectSuccess(third.Run());
  for (const char* metric : kMetrics) {
    std::map<int64_t, double> expected = alone.Metric(metric);
    expected.erase(expected.begin(), expected.upper_bound(6));
    EXPECT_EQ(third.Metric(metric), expected) << metric;
  }
  for (const std::string& file : FilesOf(GetParam())) {
    EXPECT_EQ(third.CheckpointBytes(kSteps, file), alone.CheckpointBytes(kSteps, file)) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, BitwiseTest, ::testing::ValuesIn(kCases),
                         [](const auto& instance) { return std::string(instance.param.name); });

// A copy of the checkpoint, as a run with such a hosting would have left it.
std::string WithHosting(const std::string& checkpoint_dir, const testing::TempDir& folder,
                        const std::vector<int>& hosting) {
  const auto manifest = checkpoint::VerifyCheckpoint(checkpoint_dir);
  TY_CHECK_OK(manifest.status());
  std::vector<checkpoint::CheckpointFile> files;
  for (const checkpoint::ManifestEntry& entry : manifest->files) {
    const std::string path = JoinPath(checkpoint_dir, entry.name);
    std::string content = ReadFile(path).value();
    if (entry.name == "state.json") {
      StateRecord state = ReadState(path).value();
      state.identity.hosting = hosting;
      content = EncodeState(state);
    }
    files.push_back({entry.name, content});
  }
  TY_CHECK_OK(checkpoint::WriteCheckpoint(folder.path(), manifest->step, files));
  return checkpoint::CheckpointPath(folder.path(), manifest->step);
}

// This is a hosting for devices of different speeds.
TEST(Bitwise, UnequalHostingGivesTheSameBytes) {
  const JobText job = JobOf(kCases[0]);
  GangTrainer even(job, 2, "cpu");
  ExpectSuccess(even.Run());
  const std::string from = checkpoint::CheckpointPath(even.dir().CheckpointsDir(), 3);
  for (const std::vector<int>& hosting :
       {std::vector{1, 6}, std::vector{6, 1}, std::vector{2, 5}}) {
    const testing::TempDir folder;
    GangTrainer unequal(job, 2, "cpu");
    unequal.assignment().resume_from = WithHosting(from, folder, hosting);
    ExpectSuccess(unequal.Run());
    const auto state =
        ReadState(StatePath(checkpoint::CheckpointPath(unequal.dir().CheckpointsDir(), 6)));
    EXPECT_EQ(state->identity.hosting, hosting);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(unequal.CheckpointBytes(kSteps, file), even.CheckpointBytes(kSteps, file))
          << file << " with " << hosting[0] << " and " << hosting[1];
    }
    EXPECT_EQ(unequal.Metric("test.loss").at(kSteps), even.Metric("test.loss").at(kSteps));
    const auto progress = run_dir::ReadProgress(unequal.dir(), 0);
    ASSERT_EQ(progress->hosting.size(), 2U);
    EXPECT_EQ(progress->hosting[1].first_replica, hosting[0]);
    EXPECT_EQ(progress->hosting[1].replicas, hosting[1]);
    EXPECT_EQ(progress->hosting_reason, "as before, on devices of the same types");
  }
}

// A clock that makes the caller slow.
class FastClock : public Clock {
 public:
  explicit FastClock(double speed) : speed_(speed) {}
  absl::Time Now() override { return Clock::Real()->Now(); }
  absl::Duration Uptime() override { return speed_ * Clock::Real()->Uptime(); }
  void SleepFor(absl::Duration) override {}  // no rank sleeps by it

 private:
  const double speed_;
};

// By their clocks rank 1 needs twenty times as long as rank 0, and both long enough to be believed.
TEST(Bitwise, ReplicasMoveToTheFasterRankWithinTheRunAndTheBytesStay) {
  JobText job = JobOf(kCases[0]);
  job.train = R"({"steps": 30, "global_batch": 16, "replicas": 7, "seed": 5,
                  "reproducibility": "REPRODUCIBILITY_BITWISE"})";
  for (const char* backend : {"cpu", "reference"}) {  // over shared memory, and over the wire
    GangTrainer alone(job, 1, backend);
    ExpectSuccess(alone.Run(), 30);
    FastClock fast(500), slow(10'000);
    GangTrainer gang(job, 2, backend);
    gang.set_clock(0, fast);
    gang.set_clock(1, slow);
    ExpectSuccess(gang.Run(), 30);
    const auto progress = run_dir::ReadProgress(gang.dir(), 0);
    ASSERT_EQ(progress->hosting.size(), 2U);
    EXPECT_GE(progress->hosting[0].replicas, 5) << progress->hosting_reason;
    EXPECT_GT(progress->hosting[0].samples_per_s, progress->hosting[1].samples_per_s);
    EXPECT_THAT(progress->hosting_reason, HasSubstr("speeds of steps "));
    EXPECT_EQ(gang.Metric("train.loss"), alone.Metric("train.loss"));
    EXPECT_EQ(gang.Metric("test.loss"), alone.Metric("test.loss"));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(gang.CheckpointBytes(30, file), alone.CheckpointBytes(30, file)) << file;
    }
  }
}

TEST(Bitwise, AStatisticalRunWhoseReplicasMoveAgreesWithinRounding) {
  JobText job = JobOf(kCases[0]);
  job.train = R"({"steps": 30, "global_batch": 16, "replicas": 7, "seed": 5})";
  for (const char* model : {kCases[0].model, R"({"mlp": {"hidden": [24]}})"}) {
    job.model = model;
    GangTrainer alone(job, 1, "cpu");
    ExpectSuccess(alone.Run(), 30);
    FastClock fast(500), slow(10'000);
    GangTrainer gang(job, 2, "cpu");
    gang.set_clock(0, fast);
    gang.set_clock(1, slow);
    ExpectSuccess(gang.Run(), 30);
    EXPECT_GE(run_dir::ReadProgress(gang.dir(), 0)->hosting[0].replicas, 5);
    for (const auto& [step, loss] : alone.Metric("train.loss")) {
      EXPECT_NEAR(gang.Metric("train.loss").at(step), loss, 1e-3 * (1 + loss)) << step;
    }
  }
}

TEST(Bitwise, AHostingOfOtherDevicesIsNotTaken) {
  const JobText job = JobOf(kCases[0]);
  GangTrainer even(job, 2, "cpu");
  ExpectSuccess(even.Run());
  const testing::TempDir folder;
  GangTrainer other(job, 2, "cpu");
  other.assignment().resume_from =
      WithHosting(checkpoint::CheckpointPath(even.dir().CheckpointsDir(), 3), folder, {1, 6});
  other.assignment().ranks[1].device_type = "another";
  ExpectSuccess(other.Run());
  EXPECT_EQ(run_dir::ReadProgress(other.dir(), 0)->hosting[0].replicas, 4);
}

// One process computes what all replicas computed, whichever ranks hosted them.
TEST(Bitwise, TheEvaluationIsVerifiedReplicaByReplica) {
  GangTrainer gang(JobOf(kCases[3]), 2, "cpu");
  ExpectSuccess(gang.Run());
  const auto report =
      Verify({.checkpoint_dir = checkpoint::CheckpointPath(gang.dir().CheckpointsDir(), kSteps),
              .dataset_dir = "",
              .format = VerifyFormat::kText},
             *Clock::Real());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->is_right) << report->text;
  EXPECT_THAT(report->text, HasSubstr("test.ema_loss"));
}

// A job whose replicas have enough rows for threads to share their sums.
JobText WideJob() {
  JobText job = JobOf(kCases[0]);
  job.model = R"({"convnet": {"channels": [32, 64], "batch_norm": true}})";
  job.data = R"({"dataset": "glyphs", "train_size": 240, "test_size": 100})";
  job.train = R"({"steps": 8, "global_batch": 96, "replicas": 2, "seed": 5,
                  "reproducibility": "REPRODUCIBILITY_BITWISE"})";
  return job;
}

TEST(Bitwise, AnyThreadsOfEachRankGiveTheSameBytes) {
  GangTrainer alone(WideJob(), 1, "cpu");
  ExpectSuccess(alone.Run());
  for (const std::vector<int>& threads : std::vector<std::vector<int>>{{2}, {3}, {3, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(threads));
    GangTrainer gang(WideJob(), static_cast<int>(threads.size()), "cpu");
    for (size_t rank = 0; rank < threads.size(); ++rank) {
      gang.assignment().ranks[rank].threads = threads[rank];
    }
    ExpectSuccess(gang.Run());
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(gang.CheckpointBytes(kSteps, file), alone.CheckpointBytes(kSteps, file)) << file;
    }
    for (const char* metric : kMetrics) {
      EXPECT_EQ(gang.Metric(metric), alone.Metric(metric)) << metric;
    }
    if (threads.size() == 1) {
      EXPECT_EQ(gang.CheckpointBytes(kSteps, "state.json"),
                alone.CheckpointBytes(kSteps, "state.json"));
    }
  }
}

TEST(Bitwise, AnAttemptWithOtherThreadsContinuesToTheSameBytes) {
  GangTrainer first(WideJob(), 2, "cpu");
  first.assignment().ranks[0].threads = 3;
  first.assignment().ranks[1].threads = 2;
  ExpectSuccess(first.Run());
  GangTrainer second(WideJob(), 1, "cpu");
  second.assignment().resume_from = checkpoint::CheckpointPath(first.dir().CheckpointsDir(), 3);
  second.assignment().ranks[0].threads = 1;
  ExpectSuccess(second.Run());
  EXPECT_EQ(second.CheckpointBytes(kSteps, "model.safetensors"),
            first.CheckpointBytes(kSteps, "model.safetensors"));
}

TEST(Bitwise, AStatisticalRunOnOtherRanksMayRoundOtherwise) {
  // Otherwise the cases above would prove nothing.
  JobText job = JobOf(kCases[4]);
  job.train = R"({"steps": 8, "global_batch": 16, "replicas": 7, "seed": 5})";
  GangTrainer alone(job, 1, "cpu"), gang(job, 3, "cpu");
  ExpectSuccess(alone.Run());
  ExpectSuccess(gang.Run());
  EXPECT_NE(alone.CheckpointBytes(kSteps, "model.safetensors"),
            gang.CheckpointBytes(kSteps, "model.safetensors"));
}

}  // namespace
}  // namespace trainyard::trainer
