// Tests the state and memory of an executable, over the emulated device, which lets copies arrive
// late and can run out of memory.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/dnn/plan_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

constexpr int64_t kDeviceBytes = int64_t{8} << 30;

class CudaExecutableMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = MakeCudaBackend({.autotunes = false});
    ASSERT_TRUE(made.ok()) << made.status();
    backend_ = *std::move(made);
  }
  void TearDown() override {
    cuda_on_cpu::SetDeviceBytes(kDeviceBytes);
    cuda_on_cpu::SetHandleBytes(0);
    cuda_on_cpu::WatchPlans({});
  }

  std::unique_ptr<Backend> backend_;
  const Graph model_ = *BuildMlp({.input = {3}, .hidden = {}, .classes = 2});
};

TEST_F(CudaExecutableMemory, WhatWasWrittenIsThereForTheNextStep) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    cuda_on_cpu::SetSeed(seed);
    auto executable = backend_->Compile(model_, {}, {.max_rows = 1});
    ASSERT_TRUE(executable.ok()) << executable.status();
    const std::vector<float> inputs = {1, 2, 3};
    // In the second call, only the parameters are waited for.
    for (const float factor : {1.0F, 2.0F}) {
      for (size_t i = 0; i < (*executable)->state().size(); ++i) {
        const StateTensor& tensor = (*executable)->state()[i];
        if (tensor.kind != StateTensor::Kind::kParameter) continue;
        const std::vector<float> values(static_cast<size_t>(ElementCount(tensor.shape)), factor);
        ASSERT_TRUE((*executable)->WriteState(i, values).ok());
      }
      const auto logits = (*executable)->Predict(inputs);
      ASSERT_TRUE(logits.ok()) << logits.status();
      EXPECT_THAT(*logits, ::testing::Each(7 * factor)) << "seed " << seed;
    }
  }
}

TEST_F(CudaExecutableMemory, AModelThatDidNotFitLeavesNothingBehind) {
  const testing::TestBatch batch = testing::RandomBatch(1, model_, 4);
  const int64_t before = cuda_on_cpu::LiveBytes();
  cuda_on_cpu::SetDeviceBytes(before + 4096);
  const auto refused = backend_->Compile(model_, {}, {.max_rows = 4});
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_EQ(cuda_on_cpu::LiveBytes(), before);
  cuda_on_cpu::SetDeviceBytes(kDeviceBytes);
  auto executable = backend_->Compile(model_, {}, {.max_rows = 4});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const absl::Status accumulated = (*executable)->Accumulate(batch.batch(), 1, nullptr);
  EXPECT_TRUE(accumulated.ok()) << accumulated;
}

// Plans are built by several threads, whose handles take memory that no plan of a step counts.
TEST_F(CudaExecutableMemory, AStepGetsTheMemoryOfTheHandlesThatBuiltItsPlans) {
  const Graph model = *BuildConvnet({.input = {3, 8, 8}, .channels = {8, 8}, .classes = 4});
  const CompileOptions options = {.max_rows = 16, .precision = Precision::kBf16};
  const int64_t before = cuda_on_cpu::LiveBytes();
  int64_t step_bytes = 0;
  int64_t handle_bytes = 0;
  {
    const auto measuring = MakeCudaBackend({.autotunes = true});
    const auto executable = (*measuring)->Compile(model, {}, options);
    ASSERT_TRUE(executable.ok()) << executable.status();
    step_bytes = cuda_on_cpu::LiveBytes() - before;
    handle_bytes = (*executable)->memory_plan().activations;
  }
  cuda_on_cpu::SetHandleBytes(handle_bytes);
  // There is room for one handle beside the step, but not for two.
  cuda_on_cpu::SetDeviceBytes(before + step_bytes + handle_bytes + handle_bytes / 2);
  const int64_t handles_before = cuda_on_cpu::LiveCudnnHandles();
  std::atomic<int64_t> handles = 0;
  cuda_on_cpu::WatchPlans([&] {
    handles = std::max(handles.load(), cuda_on_cpu::LiveCudnnHandles() - handles_before);
  });
  const auto measuring = MakeCudaBackend({.autotunes = true});
  const auto executable = (*measuring)->Compile(model, {}, options);
  EXPECT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(handles, std::min(2, cuda::dnn::PlanBuilder::UsualThreads()));
}

}  // namespace
}  // namespace trainyard::engine
