// Tests training in f16, where gradients are computed multiplied by a scale that is part of the
// state.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/kernels/update.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

Graph Model() {
  return *BuildConvnet({.input = {3, 8, 8}, .channels = {8, 8}, .classes = 5, .batch_norm = true});
}

TEST(LossScales, StayAsTheBackendSetThemWhenParametersStart) {
  const std::unique_ptr<Executable> executable = testing::Compile(
      testing::TestedBackend(), Model(), {}, {.max_rows = 4, .precision = Precision::kF16});
  const testing::Values first = {cuda::kLossScaleStart, 0};
  EXPECT_EQ(testing::ReadState(*executable, "loss_scale"), first);
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  EXPECT_EQ(testing::ReadState(*executable, "loss_scale"), first);
  testing::WriteState(*executable, "loss_scale", {1024, 7});
  EXPECT_EQ(testing::ReadState(*executable, "loss_scale"), (testing::Values{1024, 7}));
}

TEST(LossScales, LetANetworkTrainInF16) {
  const std::unique_ptr<Executable> executable =
      testing::Compile(testing::TestedBackend(), Model(), {.momentum = 0.9},
                       {.max_rows = 4, .precision = Precision::kF16});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  const testing::TestBatch batch = testing::RandomBatch(2, Model(), 4);
  double first = 0, last = 0;
  for (int step = 0; step < 8; ++step) {
    ASSERT_TRUE(executable->StartStep(batch.batch(), 0.05).ok());
    const absl::StatusOr<StepMetrics> metrics = executable->FinishUpdate();
    ASSERT_TRUE(metrics.ok());
    last = metrics->loss;
    if (step == 0) first = last;
    ASSERT_TRUE(std::isfinite(last)) << "step " << step;
  }
  EXPECT_LT(last, first / 2);
}

}  // namespace
}  // namespace trainyard::engine
