// Tests when plans are measured, over the emulated cuDNN, which counts the plans that were run. A
// measurement takes seconds on a device, so none may happen inside a step.
#include <cstdint>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

class CudaEffort : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = MakeCudaBackend({.plan_cache_folder = "", .autotunes = true});
    ASSERT_TRUE(made.ok()) << made.status();
    backend_ = *std::move(made);
  }

  // The plans that were run by a call.
  template <class Call>
  static int64_t PlansOf(const Call& call) {
    const int64_t before = cuda_on_cpu::PlansRun();
    call();
    return cuda_on_cpu::PlansRun() - before;
  }

  std::unique_ptr<Backend> backend_;
  const Graph model_ = *BuildConvnet({.input = {3, 8, 8}, .channels = {8, 8}, .classes = 4});
  const CompileOptions options_ = {.max_rows = 8, .precision = Precision::kBf16};
};

TEST_F(CudaEffort, ATailIsNotMeasuredInsideItsStep) {
  auto compiled = backend_->Compile(model_, {}, options_);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  Executable& executable = **compiled;
  testing::RandomizeState(1, executable);
  for (const int64_t rows : {int64_t{8}, int64_t{5}, int64_t{1}}) {
    const testing::TestBatch batch = testing::RandomBatch(1, model_, rows);
    const auto step = [&] {
      EXPECT_TRUE(executable.Accumulate(batch.batch(), 1, nullptr).ok());
      EXPECT_TRUE(executable.Update(0.1).ok());
    };
    const auto evaluate = [&] { EXPECT_TRUE(executable.Evaluate(batch.batch()).ok()); };
    const int64_t first = PlansOf(step);
    EXPECT_EQ(PlansOf(step), first) << rows << " rows";
    const int64_t first_evaluation = PlansOf(evaluate);
    EXPECT_EQ(PlansOf(evaluate), first_evaluation) << rows << " rows";
  }
}

TEST_F(CudaEffort, WhatWasCompiledBeforehandIsNotCompiledInAStep) {
  auto compiled = backend_->Compile(model_, {}, options_);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  Executable& executable = **compiled;
  testing::RandomizeState(1, executable);
  ASSERT_TRUE(executable.CompileRows({5, 8}, {3}).ok());
  const testing::TestBatch tail = testing::RandomBatch(1, model_, 5);
  const testing::TestBatch few = testing::RandomBatch(1, model_, 3);
  // From here on no plan can be made, so what is compiled now would compute without cuDNN.
  cuda_on_cpu::RefuseConvolutions([](const cuda_on_cpu::ConvolutionShape&) { return true; });
  const int64_t in_step = PlansOf([&] {
    EXPECT_TRUE(executable.Accumulate(tail.batch(), 1, nullptr).ok());
    EXPECT_TRUE(executable.Update(0.1).ok());
  });
  const int64_t in_evaluation =
      PlansOf([&] { EXPECT_TRUE(executable.Evaluate(few.batch()).ok()); });
  cuda_on_cpu::RefuseConvolutions({});
  EXPECT_EQ(in_step, 5) << "two convolutions forward, three gradients";
  EXPECT_EQ(in_evaluation, 2);
}

TEST_F(CudaEffort, ARankThatTakesChoicesOverMeasuresNothing) {
  CompileOptions options = options_;
  options.deterministic = false;  // then products are measured as well
  auto leader = backend_->Compile(model_, {}, options);
  ASSERT_TRUE(leader.ok()) << leader.status();
  options.choices = (*leader)->MeasuredChoices();
  const std::unique_ptr<Backend> other = *MakeCudaBackend({.autotunes = true});
  const int64_t of_follower = PlansOf([&] {
    auto follower = other->Compile(model_, {}, options);
    ASSERT_TRUE(follower.ok()) << follower.status();
    EXPECT_EQ((*follower)->MeasuredChoices(), options.choices);
  });
  EXPECT_EQ(of_follower, 0);
  options.choices = "{}";
  EXPECT_EQ(other->Compile(model_, {}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Admission plans many sizes, of which none or one is then compiled.
TEST_F(CudaEffort, APlanMeasuresNothingAndDoesNotReplaceAMeasurement) {
  EXPECT_EQ(PlansOf([&] { EXPECT_TRUE(backend_->Plan(model_, {}, options_).ok()); }), 0);
  EXPECT_GT(PlansOf([&] { EXPECT_TRUE(backend_->Compile(model_, {}, options_).ok()); }), 0);
  EXPECT_EQ(PlansOf([&] { EXPECT_TRUE(backend_->Compile(model_, {}, options_).ok()); }), 0)
      << "what was measured once is remembered";
}

}  // namespace
}  // namespace trainyard::engine
