// Tests that the benchmark measures the step with which a job trains.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/step_timer.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/make_backend.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::engine::bench {
namespace {

constexpr int kRows = 2;

// Returns the job whose step is that of the net `resnet20`, in which passes over norms show.
trainer::PreparedModel PrepareJob(const std::string& more_of_train) {
  const auto spec = trainer::ParseSpec(absl::StrCat(
      R"({"name": "a", "data": {"dataset": "cifar10"},
          "model": {"resnet": {"depth": 20, "stem": "STEM_CIFAR", "input": [3, 32, 32],
                               "classes": 10}},
          "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}},
          "train": {"epochs": 1, "replicas": 1, "global_batch": )",
      kRows, more_of_train, "}}"));
  EXPECT_TRUE(spec.ok()) << spec.status();
  auto model = trainer::PrepareModel(*spec, {.backend = kCudaBackend});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : trainer::PreparedModel();
}

class SameStep : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterBackend(kCudaBackend, [] { return MakeCudaBackend({.autotunes = false}); });
  }

  // Compiles both steps and compares what they run and hold.
  static void ExpectSame(const TimerOptions& timed, const trainer::PreparedModel& trained) {
    const CompileOptions options = CompileOptionsOf(timed);
    EXPECT_EQ(options.precision, trained.options.precision);
    EXPECT_EQ(options.deterministic, trained.options.deterministic);
    EXPECT_EQ(options.captures, trained.options.captures);
    EXPECT_TRUE(options.passes == trained.options.passes);
    EXPECT_EQ(options.max_rows, trained.options.max_rows);
    const auto timer = StepTimer::Create(timed);
    ASSERT_TRUE(timer.ok()) << timer.status();
    const auto backend = MakeBackend(kCudaBackend);
    ASSERT_TRUE(backend.ok()) << backend.status();
    const auto step = (*backend)->Compile(trained.graph, trained.optimizer, trained.options);
    ASSERT_TRUE(step.ok()) << step.status();
    const auto* executable = dynamic_cast<const cuda::CudaExecutable*>(step->get());
    ASSERT_NE(executable, nullptr);
    int64_t calls = 0;
    for (const auto& [op, count] : executable->CallsByOp()) calls += count;
    EXPECT_EQ((*timer)->calls(), calls);
    EXPECT_EQ((*timer)->memory_plan().categories(), executable->memory_plan().categories());
  }
};

TEST_F(SameStep, TheBenchmarkRunsWhatAJobRunsThatSaysNothing) {
  ExpectSame({.net = "resnet20", .rows = kRows, .autotunes = false}, PrepareJob(""));
}

TEST_F(SameStep, AndWhatABitwiseJobRuns) {
  ExpectSame({.net = "resnet20", .rows = kRows, .deterministic = true, .autotunes = false},
             PrepareJob(R"(, "reproducibility": "REPRODUCIBILITY_BITWISE")"));
}

TEST_F(SameStep, AndWhatAJobRunsThatNamesItsPrecision) {
  ExpectSame({.net = "resnet20", .rows = kRows, .precision = Precision::kF32, .autotunes = false},
             PrepareJob(R"(, "precision": "PRECISION_F32")"));
}

}  // namespace
}  // namespace trainyard::engine::bench
