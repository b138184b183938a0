// Tests whole trainings on a GPU, or on the emulation of one. They learn as much as on the CPU,
// resume to the bit, and share their work.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/trainer/cuda/cuda_exchange.h"
#include "worker/trainer/cuda/cuda_support.h"

namespace trainyard::trainer {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

// The emulation has two devices, so that ranks can have one each. It reads this variable when it is
// first used.
const int kTwoDevices = setenv("TRAINYARD_CUDA_DEVICES", "2", /*overwrite=*/1);

constexpr char kAllFiles[][24] = {"model.safetensors", "optimizer.safetensors", "state.json"};

// Returns steps over a few epochs. The last batch of each epoch is smaller.
JobText Job(const std::string& precision, int64_t steps, bool is_bitwise = false) {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
  job.optimizer = R"({"sgd": {"lr": 0.02, "momentum": 0.9, "nesterov": true}})";
  job.train =
      absl::StrCat(R"({"steps": )", steps, R"(, "global_batch": 16, "replicas": 1,
                             "seed": 5, "precision": "PRECISION_)",
                   absl::AsciiStrToUpper(precision),
                   is_bitwise ? R"(", "reproducibility": "REPRODUCIBILITY_BITWISE"})" : R"("})");
  job.more = R"(, "checkpoint": {"every": {"steps": 3}}, "evaluate": {"every": {"steps": 5}})";
  return job;
}

std::vector<float> LossScale(const GangTrainer& trainer, int64_t step) {
  const auto file =
      checkpoint::DecodeSafetensors(trainer.CheckpointBytes(step, "optimizer.safetensors"));
  EXPECT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->tensors, Contains(Key("loss_scale")));
  return checkpoint::FloatValues(file->tensors.at("loss_scale")).value();
}

TEST(TrainOnCuda, LearnsWhatTheCpuLearns) {
  constexpr int64_t kMany = 30;
  GangTrainer cuda(Job("f32", kMany), 1, "cuda"), cpu(Job("f32", kMany), 1, "cpu");
  ExpectSuccess(cuda.Run(), kMany);
  ExpectSuccess(cpu.Run(), kMany);
  for (const char* metric : {"train.loss", "test.loss"}) {
    const std::map<int64_t, double> expected = cpu.Metric(metric);
    ExpectNear(cuda.Metric(metric), expected, 2e-3);
  }
  EXPECT_EQ(cuda.Metric("lr"), cpu.Metric("lr"));
}

// Compares as much of the curve as 8 or 11 bits of mantissa leave. In f16 that is only its
// beginning: a step that is skipped, since the loss scale is too large for its gradients, shifts
// all that follow.
TEST(TrainOnCuda, LearnsInSixteenBitsWhatItLearnsIn32) {
  GangTrainer f32(Job("f32", kSteps), 1, "cuda");
  ExpectSuccess(f32.Run());
  for (const auto& [precision, last] : {std::pair("bf16", kSteps), std::pair("f16", int64_t{3})}) {
    SCOPED_TRACE(precision);
    GangTrainer reduced(Job(precision, kSteps), 1, "cuda");
    ExpectSuccess(reduced.Run());
    std::map<int64_t, double> got = reduced.Metric("train.loss");
    std::map<int64_t, double> expected = f32.Metric("train.loss");
    got.erase(got.upper_bound(last), got.end());
    expected.erase(expected.upper_bound(last), expected.end());
    ExpectNear(got, expected, 3e-2);
  }
}

// Covers everything that an optimizer may keep beside the weights, with the loss scale. Bits are
// promised on a GPU only to a job that asks for them.
TEST(TrainOnCuda, ARunWithAveragesAndClippedGradientsResumesBitForBit) {
  JobText job = Job("f16", kSteps, /*is_bitwise=*/true);
  job.optimizer = R"({"adamw": {"lr": 0.003}, "clip_norm": 1, "ema_decay": 0.9})";
  GangTrainer whole(job, 1, "cuda"), resumed(job, 1, "cuda");
  ExpectSuccess(whole.Run());
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 3);
  ExpectSuccess(resumed.Run());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "ema.safetensors"}) {
    EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file)) << file;
  }
  EXPECT_EQ(resumed.Metric("test.ema_loss").at(kSteps), whole.Metric("test.ema_loss").at(kSteps));
}

class ResumeOnCuda : public ::testing::TestWithParam<const char*> {};

TEST_P(ResumeOnCuda, AResumedRunEqualsTheUndisturbedOneBitForBit) {
  const JobText job = Job(GetParam(), kSteps, /*is_bitwise=*/true);
  GangTrainer whole(job, 1, "cuda");
  ExpectSuccess(whole.Run());
  for (const int64_t step : {3, 6}) {
    GangTrainer resumed(job, 1, "cuda");
    resumed.assignment().resume_from =
        checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), step);
    ExpectSuccess(resumed.Run());
    for (const char* metric : {"train.loss", "train.accuracy", "lr", "test.loss"}) {
      std::map<int64_t, double> expected = whole.Metric(metric);
      expected.erase(expected.begin(), expected.upper_bound(step));
      EXPECT_EQ(resumed.Metric(metric), expected) << metric << " after step " << step;
    }
    for (const char* file : kAllFiles) {
      EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file))
          << file << " after step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ResumeOnCuda, ::testing::Values("f32", "tf32", "bf16", "f16"),
                         [](const auto& instance) { return std::string(instance.param); });

// A stop may come between any two steps. What is in flight then must be in the checkpoint.
TEST(TrainOnCuda, AStoppedRunGoesOnWhereItStopped) {
  const JobText job = Job("f32", kSteps, /*is_bitwise=*/true);
  GangTrainer whole(job, 1, "cuda"), stopped(job, 1, "cuda");
  ExpectSuccess(whole.Run());
  stopped.signals(0).stop.store(true);
  const run_dir::RankResult result = stopped.Run()[0];
  EXPECT_EQ(result.outcome, run_dir::Outcome::kStopped) << result.message;
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(stopped.Metric("train.loss").size(), 1U);
  stopped.signals(0).stop.store(false);
  ExpectSuccess(stopped.Run());
  EXPECT_EQ(stopped.Metric("train.loss"), whole.Metric("train.loss"));
  for (const char* file : kAllFiles) {
    EXPECT_EQ(stopped.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file)) << file;
  }
}

TEST(TrainOnCuda, ACheckpointOfF16HasTheLossScaleThatItsStepsLeft) {
  GangTrainer trainer(Job("f16", kSteps), 1, "cuda");
  ExpectSuccess(trainer.Run());
  const std::vector<float> before = LossScale(trainer, 3), after = LossScale(trainer, 6);
  ASSERT_EQ(before.size(), 2U);
  // The scale begins with 2^16 and is halved where gradients overflow. Otherwise the steps are
  // counted.
  EXPECT_GE(after[0], 1);
  EXPECT_LE(after[0], before[0]);
  EXPECT_LE(before[0], 65536);
  EXPECT_TRUE(after[0] < before[0] || after[1] == before[1] + 3);
}

TEST(TrainOnCuda, ALossThatIsNotFiniteEndsTheRunWithItsStep) {
  JobText job = Job("f32", kSteps);
  job.model = R"({"mlp": {"hidden": [8]}})";
  job.optimizer = R"({"sgd": {"lr": 1000, "momentum": 0.9}})";
  GangTrainer cuda(job, 1, "cuda"), cpu(job, 1, "cpu");
  const run_dir::RankResult got = cuda.Run()[0], expected = cpu.Run()[0];
  EXPECT_EQ(got.outcome, run_dir::Outcome::kUserError);
  EXPECT_EQ(got.reason, "LOSS_NOT_FINITE");
  // This step is not the first one, so another update is in flight when the problem is found.
  EXPECT_GT(expected.step, 1);
  EXPECT_EQ(got.step, expected.step);
  EXPECT_EQ(cuda.Metric("lr").rbegin()->first, got.step);
  EXPECT_EQ(got.message, expected.message);
}

// Batch norm takes the statistics of each replica by itself, so that all gangs compute the same.
JobText SharedJob() {
  JobText job = Job("f32", kSteps);
  job.train = R"({"steps": 8, "global_batch": 16, "replicas": 3, "seed": 5,
                   "precision": "PRECISION_F32"})";
  return job;
}

JobText BitwiseJob() {
  JobText job = SharedJob();
  job.train =
      R"({"steps": 8, "global_batch": 16, "replicas": 4, "seed": 5, "precision": "PRECISION_F32",
          "reproducibility": "REPRODUCIBILITY_BITWISE"})";
  return job;
}

// Makes the gang's sums go through the memory of the host.
void ShareByWayOfTheHost(GangTrainer& gang) {
  gang.set_make_exchange([](int, DeviceExchangeRequest request) {
    return MakeCudaExchange(/*nccl=*/nullptr, std::move(request));
  });
}

TEST(TrainOnCuda, RanksThatShareADeviceLearnWhatOneLearns) {
  GangTrainer alone(SharedJob(), 1, "cuda"), gang(SharedJob(), 2, "cuda");
  ShareByWayOfTheHost(gang);
  ExpectSuccess(alone.Run());
  ExpectSuccess(gang.Run());
  for (const char* metric : {"train.loss", "train.accuracy", "test.loss"}) {
    ExpectNear(gang.Metric(metric), alone.Metric(metric), 1e-4);
  }
}

TEST(TrainOnCuda, AGangResumesBitForBit) {
  GangTrainer whole(BitwiseJob(), 2, "cuda"), resumed(BitwiseJob(), 2, "cuda");
  ShareByWayOfTheHost(whole);
  ShareByWayOfTheHost(resumed);
  ExpectSuccess(whole.Run());
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 3);
  ExpectSuccess(resumed.Run());
  for (const char* file : kAllFiles) {
    EXPECT_EQ(resumed.CheckpointBytes(kSteps, file), whole.CheckpointBytes(kSteps, file)) << file;
  }
}

// Connects the gang as the program does; `transport` is the value of its flag.
void ConnectAsTheProgram(GangTrainer& gang, const std::string& transport) {
  gang.set_make_exchange([&gang, transport](int rank, DeviceExchangeRequest request) {
    return CudaSupport().MakeExchange({.run_dir = gang.dir(),
                                       .assignment = gang.assignment(),
                                       .rank = rank,
                                       .transport = transport},
                                      std::move(request));
  });
}

// Gives each rank a GPU. Returns false if there are not enough.
bool GiveEachAGpu(GangTrainer& gang) {
  int devices = 0;
  const auto ranks = static_cast<int>(gang.assignment().ranks.size());
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < ranks) return false;
  for (run_dir::RankAssignment& rank : gang.assignment().ranks) {
    rank.device = absl::StrCat("GPU-", rank.rank);
  }
  gang.set_choose_device([](const run_dir::Assignment&, run_dir::RankAssignment& rank) {
    return engine::cuda::CudaStatus(cudaSetDevice(rank.rank), "choosing a device");
  });
  ConnectAsTheProgram(gang, "nccl");
  return true;
}

void ExpectSameFiles(const GangTrainer& gang, const GangTrainer& expected) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(gang.CheckpointBytes(kSteps, file), expected.CheckpointBytes(kSteps, file)) << file;
  }
}

TEST(TrainOnCuda, ABitwiseRunHasTheSameBytesOnSeveralRanksOfOneGpu) {
  GangTrainer alone(BitwiseJob(), 1, "cuda"), gang(BitwiseJob(), 3, "cuda");
  ShareByWayOfTheHost(gang);
  ExpectSuccess(alone.Run());
  ExpectSuccess(gang.Run());
  ExpectSameFiles(gang, alone);
  EXPECT_EQ(gang.Metric("train.loss"), alone.Metric("train.loss"));
}

TEST(TrainOnCuda, ABitwiseRunHasTheSameBytesOnTwoGpus) {
  GangTrainer alone(BitwiseJob(), 1, "cuda"), gang(BitwiseJob(), 2, "cuda");
  if (!GiveEachAGpu(gang)) GTEST_SKIP() << "this machine has no two GPUs";
  ExpectSuccess(alone.Run());
  ExpectSuccess(gang.Run());
  ExpectSameFiles(gang, alone);
}

TEST(TrainOnCuda, AShardedOptimizerKeepsTheBits) {
  JobText sharded = BitwiseJob();
  sharded.more = R"(, "memory": {"shard_optimizer": true}, "checkpoint": {"every": {"steps": 3}})";
  GangTrainer alone(BitwiseJob(), 1, "cuda"), staged(sharded, 2, "cuda"), gang(sharded, 2, "cuda");
  ExpectSuccess(alone.Run());
  ShareByWayOfTheHost(staged);
  ExpectSuccess(staged.Run());
  ExpectSameFiles(staged, alone);
  // The checkpoint has the slots of all ranks, and each takes its own from there.
  GangTrainer resumed(sharded, 2, "cuda");
  ShareByWayOfTheHost(resumed);
  resumed.assignment().resume_from = checkpoint::CheckpointPath(staged.dir().CheckpointsDir(), 3);
  ExpectSuccess(resumed.Run());
  ExpectSameFiles(resumed, alone);
  if (!GiveEachAGpu(gang)) return;
  ExpectSuccess(gang.Run());
  ExpectSameFiles(gang, alone);
}

// Each rank sees only its own blocks, and hears of the others' a step or two later.
TEST(TrainOnCuda, AShardedGangThatDivergesNamesTheStepInWhichItDid) {
  JobText job = Job("f32", 40);
  job.model = R"({"mlp": {"hidden": [8]}})";
  job.optimizer = R"({"sgd": {"lr": 1000, "momentum": 0.9}})";
  job.more = "";
  JobText sharded = job;
  sharded.more = R"(, "memory": {"shard_optimizer": true})";
  sharded.train = R"({"steps": 40, "global_batch": 16, "replicas": 2, "seed": 5,
                      "precision": "PRECISION_F32"})";
  GangTrainer alone(job, 1, "cuda"), gang(sharded, 2, "cuda");
  if (!GiveEachAGpu(gang)) GTEST_SKIP() << "this machine has no two GPUs";
  const run_dir::RankResult expected = alone.Run()[0];
  EXPECT_EQ(expected.reason, "LOSS_NOT_FINITE");
  for (const run_dir::RankResult& result : gang.Run()) {
    EXPECT_EQ(result.reason, "LOSS_NOT_FINITE");
    EXPECT_EQ(result.message, expected.message);
  }
}

TEST(TrainOnCuda, RanksWithAGpuEachSumOverNccl) {
  GangTrainer alone(SharedJob(), 1, "cuda"), gang(SharedJob(), 2, "cuda");
  if (!GiveEachAGpu(gang)) GTEST_SKIP() << "this machine has no two GPUs";
  ExpectSuccess(alone.Run());
  ExpectSuccess(gang.Run());
  ExpectNear(gang.Metric("train.loss"), alone.Metric("train.loss"), 1e-4);
}

// Compares the beginning of the curve, since rounded gradients lead elsewhere in the long run.
TEST(TrainOnCuda, GradientsThatTravelInBf16LearnNearlyTheSame) {
  JobText rounded = SharedJob();
  rounded.train = R"({"steps": 8, "global_batch": 16, "replicas": 2, "seed": 5,
                      "precision": "PRECISION_F32", "exchange_precision": "PRECISION_BF16"})";
  JobText exact = rounded;
  exact.train = R"({"steps": 8, "global_batch": 16, "replicas": 2, "seed": 5,
                    "precision": "PRECISION_F32"})";
  GangTrainer gang(rounded, 2, "cuda"), expected(exact, 2, "cuda");
  if (!GiveEachAGpu(gang) || !GiveEachAGpu(expected)) {
    GTEST_SKIP() << "this machine has no two GPUs";
  }
  ExpectSuccess(gang.Run());
  ExpectSuccess(expected.Run());
  std::map<int64_t, double> got = gang.Metric("train.loss");
  std::map<int64_t, double> exact_losses = expected.Metric("train.loss");
  EXPECT_EQ(got.size(), exact_losses.size());
  got.erase(got.upper_bound(4), got.end());
  exact_losses.erase(exact_losses.upper_bound(4), exact_losses.end());
  ExpectNear(got, exact_losses, 3e-2);
  EXPECT_NE(gang.CheckpointBytes(kSteps, "model.safetensors"),
            expected.CheckpointBytes(kSteps, "model.safetensors"));
}

// Over NCCL, votes are heard when the next step is under way. What is in flight then must be in the
// checkpoint.
TEST(TrainOnCuda, AGangOverNcclStopsOneStepLaterAndGoesOnWhereItStopped) {
  GangTrainer whole(BitwiseJob(), 2, "cuda"), stopped(BitwiseJob(), 2, "cuda"),
      resumed(BitwiseJob(), 2, "cuda");
  for (GangTrainer* gang : {&whole, &stopped, &resumed}) {
    if (!GiveEachAGpu(*gang)) GTEST_SKIP() << "this machine has no two GPUs";
  }
  ExpectSuccess(whole.Run());
  stopped.signals(1).stop.store(true);
  for (const run_dir::RankResult& result : stopped.Run()) {
    EXPECT_EQ(result.outcome, run_dir::Outcome::kStopped) << result.message;
    EXPECT_EQ(result.step, 2);
  }
  EXPECT_EQ(stopped.Metric("train.loss").size(), 2U);
  resumed.assignment().resume_from = checkpoint::CheckpointPath(stopped.dir().CheckpointsDir(), 2);
  ExpectSuccess(resumed.Run());
  ExpectSameFiles(resumed, whole);
}

// The request is heard while the next step is under way, and only once.
TEST(TrainOnCuda, AGangOverNcclWritesOneCheckpointForARequest) {
  JobText job = BitwiseJob();
  job.more = R"(, "checkpoint": {"every": {"steps": 100}})";
  GangTrainer gang(job, 2, "cuda");
  if (!GiveEachAGpu(gang)) GTEST_SKIP() << "this machine has no two GPUs";
  gang.signals(1).checkpoint_requests.store(1);
  ExpectSuccess(gang.Run());
  EXPECT_THAT(checkpoint::ListCheckpoints(gang.dir().CheckpointsDir()),
              ::testing::UnorderedElementsAre(2, kSteps));
}

// The last batch of an epoch leaves the second rank without rows.
TEST(TrainOnCuda, SynchronisedBatchNormLearnsWhatOneRankLearns) {
  JobText job = SharedJob();
  job.train = R"({"steps": 8, "global_batch": 16, "replicas": 3, "seed": 5,
                   "precision": "PRECISION_F32", "sync_batch_norm": true})";
  GangTrainer alone(job, 1, "cuda"), staged(job, 2, "cuda"), gang(job, 2, "cuda");
  ExpectSuccess(alone.Run());
  ShareByWayOfTheHost(staged);
  ExpectSuccess(staged.Run());
  for (const char* metric : {"train.loss", "train.accuracy", "test.loss"}) {
    ExpectNear(staged.Metric(metric), alone.Metric(metric), 1e-4);
  }
  if (!GiveEachAGpu(gang)) return;
  ExpectSuccess(gang.Run());
  for (const char* metric : {"train.loss", "train.accuracy", "test.loss"}) {
    ExpectNear(gang.Metric(metric), alone.Metric(metric), 1e-4);
  }
}

TEST(TrainOnCuda, RanksOfOneGpuAreSharedByThemselvesUnlessNcclIsAskedFor) {
  GangTrainer gang(SharedJob(), 2, "cuda"), refused(SharedJob(), 2, "cuda");
  ConnectAsTheProgram(gang, "auto");
  ConnectAsTheProgram(refused, "nccl");
  ExpectSuccess(gang.Run());
  for (const run_dir::RankResult& result : refused.Run()) {
    EXPECT_EQ(result.outcome, run_dir::Outcome::kUserError);
    EXPECT_THAT(result.message, HasSubstr("use --transport staged"));
  }
}

}  // namespace
}  // namespace trainyard::trainer
