// Tests a job on a GPU through server, worker and supervisor. A file describes the GPU, and the CPU
// plays it and NVIDIA's libraries.
#include <gtest/gtest.h>

#include <string>

#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr char kSpec[] = R"(name: tail
model: {convnet: {channels: [8, 8]}}
data: {dataset: glyphs, train_size: 136, test_size: 24}
train: {epochs: 2, global_batch: 16, seed: 3, precision: bf16}
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 1 epoch}
devices: {type: h200, count: 1}
)";

// Every plan of cuDNN's takes as long as one that it compiles, so measuring the candidates for a
// new number of rows takes longer than the supervisor waits for a rank that trains. The tail of an
// epoch has 8 rows, and that of the evaluation as many. The rank must not be called stuck.
TEST(GpuTrain, TailsAreNotPlannedInsideTheirSteps) {
  const TempDir scratch;
  ASSERT_TRUE(WriteFileAtomically(scratch.File("gpus"),
                                  "driver 570.86.10\n"
                                  "gpu GPU-aa00 name=NVIDIA_H200 memory=150754820096\n")
                  .ok());
  Yard::Options options;
  options.cpu_devices = 1;
  options.worker_flags = {"--nvml", FAKE_NVML, "--trainer",
                          Yard::Binary("trainyard-emulated-trainer")};
  options.worker_environment = {{"FAKE_NVML_STATE", scratch.File("gpus")},
                                {"XDG_CACHE_HOME", scratch.File("cache")},
                                {"CUDNN_ON_CPU_PLAN_SECONDS", "0.7"}};
  Yard yard(std::move(options));
  yard.Start();
  const std::string name = yard.Submit(kSpec);
  const Job job = yard.WaitForEnd(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.DebugString();
  EXPECT_EQ(job.retries(), 0) << job.DebugString();
  EXPECT_EQ(yard.Metrics(name, "train.loss").size(), 18u);
  EXPECT_EQ(yard.Metrics(name, "test.loss").size(), 2u);
  // The choices are kept for the next run.
  EXPECT_TRUE(FileExists(scratch.File("cache/trainyard/cudnn_plans")));
}

}  // namespace
}  // namespace trainyard::testing
