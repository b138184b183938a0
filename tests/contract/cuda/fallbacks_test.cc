// Tests that cuDNN computes every convolution and attention of the shipped jobs and of the
// benchmarks, at their real batch sizes: none falls back to slower kernels of ours. The library is
// the real one; no GPU takes part.
#include <google/protobuf/util/json_util.h>

#include <filesystem>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/bench_nets.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/dnn/attention_parts.h"
#include "worker/engine/backend/cuda/dnn/planner.h"

namespace trainyard::engine {
namespace {

using ::testing::Combine;
using ::testing::TestWithParam;
using ::testing::Values;

std::string DevicePath(const std::string& device) {
  return testing::SourcePath("tests/data/devices/" + device + ".json");
}

std::string Reasons(const std::vector<Fallback>& fallbacks) {
  std::string text;
  for (const Fallback& fallback : fallbacks) absl::StrAppend(&text, FallbackText(fallback), "\n");
  return text;
}

struct BenchNet {
  const char* name;
  int64_t rows;
  Precision precision = Precision::kBf16;

  friend void PrintTo(const BenchNet& net, std::ostream* out) {
    *out << net.name << ":" << net.rows << " " << PrecisionName(net.precision);
  }
};

class BenchFallbacks : public TestWithParam<std::tuple<BenchNet, bool>> {};

TEST_P(BenchFallbacks, AreNone) {
  const auto& [net, deterministic] = GetParam();
  const auto backend = MakeCudaBackend({.device_description = *ReadFile(DevicePath("h200"))});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const absl::StatusOr<Graph> model = BuildBenchNet(net.name);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto plan = (*backend)->Plan(
      *model, {},
      {.max_rows = net.rows, .precision = net.precision, .deterministic = deterministic});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Reasons(plan->fallbacks), "");
}

// These are the networks of bench_gpu.py.
INSTANTIATE_TEST_SUITE_P(
    Cuda, BenchFallbacks,
    Combine(Values(BenchNet{"resnet50", 256}, BenchNet{"gpt2", 16}, BenchNet{"wrn-28-10", 128},
                   BenchNet{"googlenet", 128}, BenchNet{"convnet", 64}, BenchNet{"googlenet", 43},
                   BenchNet{"resnet18", 128}, BenchNet{"resnet50", 256, Precision::kF16},
                   BenchNet{"resnet50", 256, Precision::kTf32}),
            ::testing::Bool()));

// Returns the kernels of a step of ResNet-50 in f16, by op.
std::map<std::string, int64_t> KernelsOfResnet50(const std::string& device, Fusions fusions) {
  const auto backend =
      *MakeCudaBackend({.fusions = fusions, .device_description = *ReadFile(DevicePath(device))});
  const auto plan = *backend->Plan(
      *BuildBenchNet("resnet50"), {},
      {.max_rows = 256, .precision = Precision::kF16, .passes = {.recompute_norms = false}});
  EXPECT_EQ(Reasons(plan.fallbacks), "");
  std::map<std::string, int64_t> kernels;
  for (const CallWork& call : plan.work) kernels[call.op] += call.kernels;
  return kernels;
}

// Each of the 16 blocks has two norms between convolutions. A norm that is not written saves a
// launch; a gradient that is summed up takes one more, and its norm one less. cuDNN proposes
// engines for nearly all of them. It refuses the first norm, which reads a part of merged
// convolutions, and on an A100 the sums of a gradient that need too much workspace.
TEST(BatchNorm, BecomesAPartOfTheConvolutionsOfResnet50) {
  struct Expected {
    const char* device;
    int64_t norms, sums;
  };
  for (const auto& [device, norms, sums] : {Expected{"h200", 31, 31}, Expected{"a100", 31, 30}}) {
    auto separate = KernelsOfResnet50(device, Fusions::kNever);
    auto fused = KernelsOfResnet50(device, Fusions::kAlways);
    EXPECT_EQ(separate["batch_norm"] - fused["batch_norm"], norms) << device;
    EXPECT_EQ(separate["batch_norm_gradient"] - fused["batch_norm_gradient"], sums) << device;
    EXPECT_EQ(fused["conv2d_input_gradient"] - separate["conv2d_input_gradient"], sums) << device;
  }
}

class AttentionFallbacks : public TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(AttentionFallbacks, AreNoneForAnyNumberOfRows) {
  const auto& [device, deterministic] = GetParam();
  const auto planner = *cuda::dnn::Planner::ForDescription(*ReadFile(DevicePath(device)),
                                                           {.deterministic = deterministic});
  for (const int64_t rows : {1, 4, 16, 32, 61, 64}) {
    for (const bool is_gradient : {false, true}) {
      const auto parts = cuda::dnn::AttentionParts::Find(*planner,
                                                         {.is_gradient = is_gradient,
                                                          .type = cuda::Type::kBf16,
                                                          .rows = rows,
                                                          .positions = 1024,
                                                          .heads = 12,
                                                          .width = 64},
                                                         cuda::Effort::kEstimate);
      ASSERT_TRUE(parts.ok()) << rows << " rows: " << parts.status();
      EXPECT_LE(parts->workspace_bytes(), planner->workspace_bytes_max());
      // The deterministic gradient keeps 24 MiB for each row on an H200.
      EXPECT_LE(parts->count(), 7U) << rows << " rows";
      if (deterministic && is_gradient && rows > 10) {
        EXPECT_GT(parts->count(), 1U) << rows << " rows";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, AttentionFallbacks,
                         Combine(Values("h200", "a100"), ::testing::Bool()));

// Plans a job as `trainyard plan` does, in bf16.
TEST(JobFallbacks, AreNone) {
  const testing::TempDir folder;
  int jobs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::SourcePath("jobs"))) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename());
    auto file = spec_loader::ReadSpecFile(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    if (file->spec.has_program()) continue;
    file->spec.mutable_train()->set_precision(v1::PRECISION_BF16);
    std::string json;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(file->spec, &json).ok());
    testing::Process::Options options;
    options.args = {testing::BinaryPath("trainyard-trainer-cuda"),
                    "--plan",
                    folder.Write("spec.json", json),
                    "--device_description",
                    DevicePath("h200"),
                    "--plan_cache",
                    folder.File("plans"),
                    "--format",
                    "text"};
    // Without any driver, cuDNN proposes no engine that it would have to compile.
    options.environment = {{"LD_LIBRARY_PATH", testing::BinaryPath("../driver_stub")}};
    const auto planned = testing::RunProcess(std::move(options), folder.path(), absl::Seconds(120));
    ASSERT_TRUE(planned.ok()) << planned.status();
    if (planned->exit_code != 0) {
      // A pipeline is not for GPUs yet.
      EXPECT_THAT(planned->err, ::testing::HasSubstr("stages"));
      continue;
    }
    // cuDNN's attention is right for multiples of 128 positions, and this job has 64.
    const bool is_short = entry.path().stem() == "gpt2-tinyshakespeare";
    EXPECT_EQ(absl::StrContains(planned->out, "cuDNN refused"), is_short) << planned->out;
    ++jobs;
  }
  EXPECT_GE(jobs, 12);
}

}  // namespace
}  // namespace trainyard::engine
