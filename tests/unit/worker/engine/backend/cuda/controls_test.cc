// Tests that each step finds the control that was sent for it, however far the host is ahead, and
// that it comes with the batch, in the same copy.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using testing::TestBatch;

constexpr OptimizerSpec kOptimizer = {.momentum = 0.9};
constexpr int64_t kBatchRows = 6;
constexpr uint64_t kSteps = 9;

// The dropout, the statistics, the loss and the update read the control.
Graph ModelThatReadsControls() {
  GraphBuilder b({2, 6, 6});
  ValueId x = b.Relu(b.BatchNorm("norm", b.Conv2d("conv", b.input(), {.channels = 8})));
  x = b.Dropout(b.Linear("fc1", b.Flatten(x), 12), 0.3);
  b.SoftmaxCrossEntropy(b.Linear("fc2", x, 5));
  return *std::move(b).Build();
}

class Controls : public ::testing::Test {
 protected:
  void TearDown() override { cuda_on_cpu::SetSeed(1); }

  std::unique_ptr<Executable> Compile() const {
    auto executable =
        *backend_->Compile(model_, kOptimizer, {.max_rows = kBatchRows, .max_groups = 2});
    testing::RandomizeState(1, *executable);
    return executable;
  }

  // The values of a step differ from those of all others, as do its labels and its groups.
  struct Step {
    TestBatch rows;
    std::vector<int64_t> groups;
    uint64_t number = 0;

    Batch batch() const {
      Batch batch = rows.batch();
      batch.groups = groups;
      batch.position = {.seed = 3, .step = static_cast<int64_t>(number), .first_row = 0};
      return batch;
    }
    double lr() const { return 0.01 * static_cast<double>(number + 1); }
  };
  Step StepOf(uint64_t number) const {
    return {testing::RandomBatch(number + 10, model_, kBatchRows),
            {2 + static_cast<int64_t>(number % 3), 4 - static_cast<int64_t>(number % 3)},
            number};
  }

  // Starts a step, as a whole or as two batches whose gradients are added.
  static void Start(Executable& executable, const Step& step, bool is_whole) {
    if (is_whole) {
      ASSERT_TRUE(executable.StartStep(step.batch(), step.lr()).ok());
      return;
    }
    ASSERT_TRUE(executable.Accumulate(step.batch(), 0.25, nullptr).ok());
    ASSERT_TRUE(executable.Accumulate(step.batch(), 0.75, nullptr).ok());
    ASSERT_TRUE(executable.StartUpdate(step.lr()).ok());
  }

  struct Course {
    std::vector<double> losses;
    testing::NamedValues state;

    friend bool operator==(const Course&, const Course&) = default;
  };
  // Lets `ahead` updates be in flight before it waits for the first of them.
  Course Train(bool is_whole, uint64_t ahead) const {
    const auto executable = Compile();
    Course course;
    for (uint64_t number = 0; number < kSteps + ahead - 1; ++number) {
      if (number < kSteps) Start(*executable, StepOf(number), is_whole);
      if (number + 1 < ahead) continue;
      course.losses.push_back(executable->FinishUpdate()->loss);
    }
    course.state = testing::ReadAllState(*executable);
    return course;
  }

  const Graph model_ = ModelThatReadsControls();
  const std::unique_ptr<Backend> backend_ = *MakeCudaBackend({.autotunes = false});
};

TEST_F(Controls, AreThoseOfTheirStepWithUpdatesInFlight) {
  for (const bool is_whole : {true, false}) {
    cuda_on_cpu::SetSeed(1);
    const Course waited = Train(is_whole, 1);
    ASSERT_EQ(waited.losses.size(), kSteps);
    for (uint64_t seed = 2; seed <= 9; ++seed) {
      cuda_on_cpu::SetSeed(seed);
      EXPECT_EQ(Train(is_whole, 2), waited)
          << (is_whole ? "whole steps" : "sums of batches") << ", seed " << seed;
    }
  }
}

// A rank without rows updates without a batch, while the update before still needs its rate.
TEST_F(Controls, KeepTheRateOfAnUpdateThatAnotherOneFollows) {
  const auto train = [this](bool is_whole, bool waits) {
    const auto executable = Compile();
    for (uint64_t number = 0; number < kSteps; ++number) {
      Start(*executable, StepOf(number), is_whole);
      const int waits_before = waits ? 1 : 0;
      for (int i = 0; i < waits_before; ++i) EXPECT_TRUE(executable->FinishUpdate().ok());
      EXPECT_TRUE(executable->StartUpdate(0.5).ok());
      for (int i = waits_before; i < 2; ++i) EXPECT_TRUE(executable->FinishUpdate().ok());
    }
    return testing::ReadAllState(*executable);
  };
  for (const bool is_whole : {true, false}) {
    cuda_on_cpu::SetSeed(1);
    const testing::NamedValues waited = train(is_whole, true);
    for (uint64_t seed = 2; seed <= 6; ++seed) {
      cuda_on_cpu::SetSeed(seed);
      EXPECT_EQ(train(is_whole, false), waited)
          << (is_whole ? "whole steps" : "sums of batches") << ", seed " << seed;
    }
  }
}

TEST_F(Controls, ComeWithTheBatchInOneCopy) {
  const auto executable = Compile();
  for (uint64_t number = 0; number < kSteps; ++number) {
    const Step step = StepOf(number);
    const int64_t before = cuda_on_cpu::CopiesEnqueued();
    Start(*executable, step, /*is_whole=*/true);
    ASSERT_TRUE(executable->FinishUpdate().ok());
    // The first step takes the general way, in which the learning rate follows by itself.
    EXPECT_EQ(cuda_on_cpu::CopiesEnqueued() - before, number == 0 ? 2 : 1) << number;
  }
}

}  // namespace
}  // namespace trainyard::engine
