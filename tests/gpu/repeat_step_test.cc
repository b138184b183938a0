// Tests that a step that is repeated, as measurements do, equals the step that StartStep makes.
#include <gtest/gtest.h>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

Graph RepeatedModel() {
  return *BuildConvnet({.input = {3, 8, 8}, .channels = {8, 8}, .classes = 5, .batch_norm = true});
}

std::unique_ptr<Executable> CompileModel() {
  std::unique_ptr<Executable> executable =
      testing::Compile(testing::TestedBackend(), RepeatedModel(),
                       {.momentum = 0.9, .weight_decay = 0.01}, {.max_rows = 4});
  testing::RandomizeState(1, *executable);
  return executable;
}

cuda::CudaExecutable& AsCuda(Executable& executable) {
  return dynamic_cast<cuda::CudaExecutable&>(executable);
}

TEST(RepeatStep, DoesWhatStartStepDoesWithTheSameBatch) {
  const std::unique_ptr<Executable> sent = CompileModel();
  const std::unique_ptr<Executable> repeated = CompileModel();
  const testing::TestBatch batch = testing::RandomBatch(2, RepeatedModel(), 4);
  // The later steps are graphs.
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(sent->StartStep(batch.batch(), 0.1).ok());
    ASSERT_TRUE(
        (step == 0 ? repeated->StartStep(batch.batch(), 0.1) : AsCuda(*repeated).RepeatStep())
            .ok());
    const absl::StatusOr<StepMetrics> a = sent->FinishUpdate();
    const absl::StatusOr<StepMetrics> b = repeated->FinishUpdate();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->loss, b->loss);
  }
  EXPECT_EQ(testing::ReadAllState(*sent), testing::ReadAllState(*repeated));
}

TEST(RepeatStep, NeedsAStepBefore) {
  const std::unique_ptr<Executable> executable = CompileModel();
  EXPECT_EQ(AsCuda(*executable).RepeatStep().code(), absl::StatusCode::kFailedPrecondition);
  const testing::TestBatch batch = testing::RandomBatch(2, RepeatedModel(), 4);
  ASSERT_TRUE(executable->StartStep(batch.batch(), 0.1).ok());
  ASSERT_TRUE(executable->FinishUpdate().ok());
  ASSERT_TRUE(executable->Evaluate(batch.batch()).ok());
  EXPECT_EQ(AsCuda(*executable).RepeatStep().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RepeatStep, NeedsUpdatesToBeFinished) {
  const std::unique_ptr<Executable> executable = CompileModel();
  const testing::TestBatch batch = testing::RandomBatch(2, RepeatedModel(), 4);
  ASSERT_TRUE(executable->StartStep(batch.batch(), 0.1).ok());
  for (int step = 1; step < executable->max_updates_in_flight(); ++step) {
    ASSERT_TRUE(AsCuda(*executable).RepeatStep().ok());
  }
  EXPECT_EQ(AsCuda(*executable).RepeatStep().code(), absl::StatusCode::kFailedPrecondition);
  for (int step = 0; step < executable->max_updates_in_flight(); ++step) {
    EXPECT_TRUE(executable->FinishUpdate().ok());
  }
}

}  // namespace
}  // namespace trainyard::engine
