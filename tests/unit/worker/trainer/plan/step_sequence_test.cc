// Tests which samples a rank computes in which step, and that ranks together compute each sample
// once.
#include "worker/trainer/plan/step_sequence.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::trainer {
namespace {

using parallel::ReplicaRange;
using parallel::RowRange;

// 50 samples in batches of 16: three full ones and one of 2.
StepSequenceOptions Options(ReplicaRange hosted, int replicas = 3) {
  return {.dataset_size = 50,
          .global_batch = 16,
          .epochs = 2,
          .replicas = replicas,
          .hosted = hosted,
          .seed = 7};
}

TEST(StepSequence, CountsStepsOfEpochsAndOfStepLimits) {
  const StepSequence epochs(Options({0, 3}));
  EXPECT_EQ(epochs.steps_per_epoch(), 4);
  EXPECT_EQ(epochs.total_steps(), 8);
  EXPECT_EQ(epochs.epochs(), 2);
  EXPECT_EQ(epochs.EpochOf(3), 0);
  EXPECT_EQ(epochs.EpochOf(4), 1);
  StepSequenceOptions options = Options({0, 3});
  options.steps = 5;
  const StepSequence steps(options);
  EXPECT_EQ(steps.total_steps(), 5);
  EXPECT_EQ(steps.epochs(), 2);
}

TEST(StepSequence, TheLastBatchOfAnEpochHasWhatIsLeft) {
  const StepSequence plan(Options({0, 3}));
  EXPECT_EQ(plan.Rows(2), 16);
  EXPECT_EQ(plan.Rows(3), 2);
  EXPECT_EQ(plan.Rows(4), 16);
}

TEST(StepSequence, ARankMayHaveNoRowsOfASmallLastBatch) {
  const StepSequence last(Options({2, 3}));
  EXPECT_EQ(last.HostedRows(0), (RowRange{11, 16}));
  EXPECT_EQ(last.HostedRows(3).size(), 0);
  EXPECT_TRUE(last.HostedSamples(3).empty());
  const StepSequence first(Options({0, 1}));
  EXPECT_EQ(first.HostedRows(3), (RowRange{0, 1}));
}

TEST(StepSequence, RanksTogetherVisitEverySampleOnceAnEpoch) {
  const StepSequence whole(Options({0, 3}));
  const StepSequence parts[] = {StepSequence(Options({0, 1})), StepSequence(Options({1, 2})),
                                StepSequence(Options({2, 3}))};
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t step = 4 * epoch; step < 4 * (epoch + 1); ++step) {
      std::vector<int64_t> joined;
      for (const StepSequence& part : parts) {
        const std::vector<int64_t> samples = part.HostedSamples(step);
        joined.insert(joined.end(), samples.begin(), samples.end());
      }
      EXPECT_EQ(joined, whole.HostedSamples(step));
      seen.insert(joined.begin(), joined.end());
    }
    EXPECT_EQ(seen.size(), 50U);
  }
  EXPECT_NE(whole.HostedSamples(0), whole.HostedSamples(4));
}

TEST(StepSequence, StepsWithRowsPassOverTheOthers) {
  const StepSequence last(Options({2, 3}));
  std::vector<int64_t> steps;
  for (int64_t n = 0; last.StepWithRows(0, n).has_value(); ++n) {
    steps.push_back(*last.StepWithRows(0, n));
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_EQ(last.StepWithRows(3, 0), 4);
  EXPECT_EQ(last.StepWithRows(5, 1), 6);
  EXPECT_EQ(last.StepWithRows(5, 2), std::nullopt);
}

TEST(StepSequence, ARankThatNeverHasRowsHasNoSteps) {
  StepSequenceOptions options = Options({20, 21}, /*replicas=*/21);
  const StepSequence plan(options);
  EXPECT_EQ(plan.max_hosted_rows(), 0);
  EXPECT_EQ(plan.StepWithRows(0, 0), std::nullopt);
}

TEST(StepSequence, ADataSetSmallerThanTheBatchIsOneStepAnEpoch) {
  StepSequenceOptions options = Options({0, 3});
  options.dataset_size = 5;
  const StepSequence plan(options);
  EXPECT_EQ(plan.steps_per_epoch(), 1);
  EXPECT_EQ(plan.Rows(0), 5);
  EXPECT_EQ(plan.max_replica_rows(), 2);
}

}  // namespace
}  // namespace trainyard::trainer
