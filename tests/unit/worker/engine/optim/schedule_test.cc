#include "worker/engine/optim/schedule.h"

#include <gtest/gtest.h>

namespace trainyard::engine {
namespace {

TEST(Schedule, ConstantKeepsTheRate) {
  const Schedule schedule{.base_lr = 0.3};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.3);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1000000), 0.3);
}

TEST(Schedule, WarmUpGrowsLinearlyToTheBaseRate) {
  const Schedule schedule{.base_lr = 0.4, .total_steps = 100, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 0.4);
}

TEST(Schedule, StepMultipliesAtEachMilestone) {
  const Schedule schedule{
      .kind = Schedule::Kind::kStep, .base_lr = 1, .milestones = {10, 20}, .gamma = 0.5};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 9), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 10), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 19), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 20), 0.25);
}

TEST(Schedule, CosineFallsFromTheBaseToTheFinalRate) {
  const Schedule schedule{.kind = Schedule::Kind::kCosine,
                          .base_lr = 1,
                          .total_steps = 110,
                          .warmup_steps = 10,
                          .final_lr = 0.2};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 10), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 60), 0.6);
  // A quarter of the way: (1 + cos 45 degrees) / 2 of the difference.
  EXPECT_NEAR(LearningRate(schedule, 35), 0.2 + 0.8 * 0.85355339059, 1e-9);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 110), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 500), 0.2);
}

TEST(Schedule, CosineWithoutStepsAfterTheWarmUpIsAtItsEnd) {
  const Schedule schedule{.kind = Schedule::Kind::kCosine,
                          .base_lr = 1,
                          .total_steps = 5,
                          .warmup_steps = 5,
                          .final_lr = 0.5};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), 0.5);
}

TEST(Schedule, PolynomialFallsAsThePowerOfWhatIsLeft) {
  const Schedule schedule{.kind = Schedule::Kind::kPolynomial,
                          .base_lr = 1,
                          .total_steps = 110,
                          .warmup_steps = 10,
                          .final_lr = 0.2,
                          .power = 2};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 9), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 10), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 60), 0.2 + 0.8 * 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 85), 0.2 + 0.8 * 0.0625);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 110), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 500), 0.2);
}

TEST(Schedule, PolynomialOfPowerOneIsALine) {
  const Schedule schedule{
      .kind = Schedule::Kind::kPolynomial, .base_lr = 0.8, .total_steps = 4, .power = 1};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.6);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 0);
}

TEST(Schedule, PolynomialWithoutStepsAfterTheWarmUpIsAtItsEnd) {
  const Schedule schedule{.kind = Schedule::Kind::kPolynomial,
                          .base_lr = 1,
                          .total_steps = 5,
                          .warmup_steps = 5,
                          .final_lr = 0.5,
                          .power = 2};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), 0.5);
}

TEST(LinearScale, IsTheShareOfTheBaseBatch) {
  EXPECT_DOUBLE_EQ(LinearScale(1024, 256), 4);
  EXPECT_DOUBLE_EQ(LinearScale(64, 256), 0.25);
  EXPECT_DOUBLE_EQ(LinearScale(64, 0), 1);
}

}  // namespace
}  // namespace trainyard::engine
