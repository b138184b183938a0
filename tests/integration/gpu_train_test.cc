// Tests a job on a GPU through server, worker and supervisor. A file describes the GPU, and the CPU
// plays it and NVIDIA's libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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
