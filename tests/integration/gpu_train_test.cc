// Tests a job on a GPU through server, worker and supervisor. A file describes the GPU, and the CPU
// plays it and NVIDIA's libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::trainyard::v1::Job;

constexpr char kSpec[] = R"(name: tail
model: {convnet: {channels: [8, 8]}}
data: {dataset: glyphs, train_size: 136, test_size: 24}
train: {epochs: 2, global_batch: 16, seed: 3, precision: bf16}
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 1 epoch}
devices: {type: h200, count: 1}
)";

// A worker with one CPU and one GPU of this type, which exists only in a file.
class GpuTrain : public ::testing::Test {
 protected:
  Yard::Options WithGpu(const std::string& product,
                        std::map<std::string, std::string> environment = {}) {
    EXPECT_TRUE(WriteFileAtomically(scratch_.File("gpus"),
                                    absl::StrCat("driver 570.86.10\ngpu GPU-aa00 name=", product,
                                                 " memory=150754820096\n"))
                    .ok());
    Yard::Options options;
    options.cpu_devices = 1;
    options.worker_flags = {"--nvml", FAKE_NVML, "--trainer",
                            Yard::Binary("trainyard-emulated-trainer")};
    options.worker_environment = std::move(environment);
    options.worker_environment["FAKE_NVML_STATE"] = scratch_.File("gpus");
    options.worker_environment["XDG_CACHE_HOME"] = scratch_.File("cache");
    return options;
  }

  // Makes a trainer whose rank 1 has a device three times as slow as that of rank 0. Times are by
  // the emulated devices' clocks, so that they do not depend on what else this machine does.
  std::string UnequalTrainer() {
    const std::string trainer = scratch_.File("unequal-trainer");
    const std::string program = trainer + "-cuda";
    EXPECT_TRUE(
        ReplaceFile(program, absl::StrCat("#!/bin/sh\n"
                                          "[ \"$TRAINYARD_RANK\" = 0 ] && us=3000 || us=9000\n"
                                          "export TRAINYARD_CUDA_OPERATION_US=$us\n"
                                          "exec ",
                                          Yard::Binary("trainyard-emulated-trainer-cuda"),
                                          " \"$@\" --transport staged\n"))
            .ok());
    EXPECT_EQ(chmod(program.c_str(), 0755), 0);
    return trainer;
  }

  const TempDir scratch_;
};

// Every plan of cuDNN's takes as long as one that it compiles, so measuring the candidates for a
// new number of rows takes longer than the supervisor waits for a rank that trains. The tail of an
// epoch has 8 rows, and that of the evaluation as many. The rank must not be called stuck.
TEST_F(GpuTrain, TailsAreNotPlannedInsideTheirSteps) {
  Yard yard(WithGpu("NVIDIA_H200", {{"CUDNN_ON_CPU_PLAN_SECONDS", "0.7"}}));
  yard.Start();
  const std::string name = yard.Submit(kSpec);
  const Job job = yard.WaitForEnd(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.DebugString();
  EXPECT_EQ(job.retries(), 0) << job.DebugString();
  EXPECT_EQ(yard.Metrics(name, "train.loss").size(), 18u);
  EXPECT_EQ(yard.Metrics(name, "test.loss").size(), 2u);
  // The choices are kept for the next run.
  EXPECT_TRUE(FileExists(scratch_.File("cache/trainyard/cudnn_plans")));
}

// Two ranks of unequal speed host two replicas each at first. The steps are so many that speeds are
// known in the second epoch, when the slow rank gives one of its replicas away. From then on the
// parts of a step have 8 and 4 rows on the fast rank and 4 on the slow one, and 3 and 1 in the tail
// of the epoch, instead of 8, and 2.
constexpr char kUnequalSpec[] = R"(name: moved
model: {convnet: {channels: [8, 8]}}
data: {dataset: glyphs, train_size: 132, test_size: 24}
train: {epochs: 2, global_batch: 16, replicas: 4, seed: 3, precision: bf16}
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 1 epoch}
devices: {type: h200, count: 2}
)";

// The lines of a rank's log. The plans that its libraries make are in it as well.
std::vector<std::string> LogOf(Yard& yard, const std::string& job, int rank) {
  const ProcessResult log = yard.Cli({"logs", job, "--rank", absl::StrCat(rank)});
  EXPECT_EQ(log.exit_code, 0) << log.err;
  return absl::StrSplit(log.out, '\n');
}

int64_t Count(absl::Span<const std::string> lines, absl::string_view text) {
  return std::count_if(lines.begin(), lines.end(),
                       [text](const std::string& line) { return absl::StrContains(line, text); });
}

TEST_F(GpuTrain, ReplicasThatHaveMovedAreNotPlannedInsideTheirSteps) {
  Yard::Options options = WithGpu(
      "NVIDIA_H200", {{"CUDNN_ON_CPU_PLAN_SECONDS", "0.3"}, {"TRAINYARD_CUDA_TELLS_PLANS", "1"}});
  ASSERT_TRUE(WriteFileAtomically(scratch_.File("gpus"),
                                  "driver 570.86.10\n"
                                  "gpu GPU-aa00 name=NVIDIA_H200 memory=150754820096\n"
                                  "gpu GPU-aa01 name=NVIDIA_H200 memory=150754820096\n")
                  .ok());
  options.worker_flags = {"--nvml", FAKE_NVML, "--trainer", UnequalTrainer()};
  Yard yard(std::move(options));
  yard.Start();
  const std::string name = yard.Submit(kUnequalSpec);
  const Job job = yard.WaitForEnd(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.DebugString();
  EXPECT_EQ(job.retries(), 0) << job.DebugString();
  EXPECT_EQ(yard.Metrics(name, "train.loss").size(), 18u);
  EXPECT_EQ(yard.Metrics(name, "test.loss").size(), 2u);
  for (const int rank : {0, 1}) {
    const std::vector<std::string> log = LogOf(yard, name, rank);
    const auto moved = std::find_if(log.begin(), log.end(), [](const std::string& line) {
      return absl::StrContains(line, "moved replicas");
    });
    ASSERT_NE(moved, log.end()) << absl::StrJoin(log, "\n");
    const auto after = absl::MakeConstSpan(log).subspan(static_cast<size_t>(moved - log.begin()));
    EXPECT_EQ(Count(after, "moved replicas"), 1) << "rank " << rank;
    EXPECT_EQ(Count(after, "makes a plan"), 0) << "rank " << rank << "\n"
                                               << absl::StrJoin(log, "\n");
    if (rank > 0) continue;
    // The new numbers of rows were planned between the evaluation and this line.
    const auto evaluated = std::find_if(log.begin(), moved, [](const std::string& line) {
      return absl::StrContains(line, "evaluated");
    });
    ASSERT_NE(evaluated, moved) << absl::StrJoin(log, "\n");
    const std::vector<std::string> between(evaluated, moved);
    EXPECT_GT(Count(between, "cuDNN on CPU makes a plan"), 0);
    EXPECT_GT(Count(between, "cuBLASLt on CPU makes a plan"), 0);
  }
}

// A job that leaves its precision to the devices.
std::string AutoSpec(const std::string& type) {
  return absl::StrCat(R"(name: auto
model: {mlp: {hidden: [8]}}
data: {dataset: glyphs, train_size: 32, test_size: 16}
train: {epochs: 1, global_batch: 16, seed: 3}
optimizer: {sgd: {lr: 0.05}}
devices: {type: )",
                      type, "}\n");
}

TEST_F(GpuTrain, APrecisionLeftToTheDeviceIsBf16AndStays) {
  Yard yard(WithGpu("NVIDIA_H200"));
  yard.Start();
  const Job on_gpu = yard.WaitForEnd(yard.Submit(AutoSpec("h200")));
  EXPECT_EQ(on_gpu.state(), v1::JOB_STATE_SUCCEEDED) << on_gpu.DebugString();
  EXPECT_EQ(on_gpu.resolved_spec().train().precision(), v1::PRECISION_BF16);
  EXPECT_THAT(yard.Cli({"show", "1"}).out, HasSubstr("\nprecision     bf16\n"));
  // The clone computes in what its original did, and is stored so.
  yard.KillServer();
  yard.StartServer();
  EXPECT_EQ(yard.GetJob("jobs/1").resolved_spec().train().precision(), v1::PRECISION_BF16);
  EXPECT_EQ(yard.Cli({"clone", "1"}).exit_code, 0);
  const Job clone = yard.WaitForEnd("jobs/2");
  EXPECT_EQ(clone.state(), v1::JOB_STATE_SUCCEEDED) << clone.DebugString();
  EXPECT_EQ(clone.resolved_spec().train().precision(), v1::PRECISION_BF16);
}

TEST_F(GpuTrain, AGpuWithoutBf16TrainsInF32) {
  Yard yard(WithGpu("NVIDIA_GeForce_GTX_1080_Ti"));
  yard.Start();
  const Job job = yard.WaitForEnd(yard.Submit(AutoSpec("gtx-1080-ti")));
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.DebugString();
  EXPECT_EQ(job.resolved_spec().train().precision(), v1::PRECISION_F32);
}

// The card is divided: the job runs on an instance of it.
TEST_F(GpuTrain, AnInstanceOfADividedGpuTrains) {
  Yard::Options options = WithGpu("NVIDIA_H200");
  ASSERT_TRUE(
      WriteFileAtomically(
          scratch_.File("gpus"),
          "driver 570.86.10\ngpu GPU-aa00 name=NVIDIA_H200 memory=150754820096 mig=1\n"
          "instance MIG-a1 GPU-aa00 name=NVIDIA_H200_MIG_1g.18gb memory=19327352832 gi=7 ci=0\n")
          .ok());
  Yard yard(std::move(options));
  yard.Start();
  const Job job = yard.WaitForEnd(yard.Submit(AutoSpec("h200-mig-1g")));
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.DebugString();
  ASSERT_EQ(job.placement_size(), 1) << job.DebugString();
  EXPECT_EQ(job.placement(0).device(), "MIG-a1");
}

}  // namespace
}  // namespace trainyard::testing
