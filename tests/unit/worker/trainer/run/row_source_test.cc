// Tests which numbers of rows a rank computes, so that it can compile for all of them beforehand.
#include "worker/trainer/run/row_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/trainer/run/evaluation.h"

namespace trainyard::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StepSequence Steps(int64_t dataset_size, int64_t batch, int replicas,
                   parallel::ReplicaRange hosted) {
  return StepSequence({.dataset_size = dataset_size,
                       .global_batch = batch,
                       .epochs = 2,
                       .replicas = replicas,
                       .hosted = hosted});
}

CompiledModel ModelFor(int64_t max_rows) {
  CompiledModel model;
  model.max_rows = max_rows;
  return model;
}

TEST(RowsOfParts, AreThoseOfAFullStepAndOfTheTail) {
  const CompiledModel model = ModelFor(32);
  EXPECT_THAT(RowsOfParts(Steps(100, 32, 1, {0, 1}), model), ElementsAre(4, 32));
  EXPECT_THAT(RowsOfParts(Steps(96, 32, 1, {0, 1}), model), ElementsAre(32));
  EXPECT_THAT(RowsOfParts(Steps(20, 32, 1, {0, 1}), model), ElementsAre(20));
}

TEST(RowsOfParts, LeaveOutATailThatNeverComes) {
  const StepSequence steps({.dataset_size = 100, .global_batch = 32, .steps = 2});
  EXPECT_THAT(RowsOfParts(steps, ModelFor(32)), ElementsAre(32));
}

TEST(RowsOfParts, FollowTheHostedReplicas) {
  CompiledModel model = ModelFor(24);
  // 32 rows in 4 replicas are 8 each; the tail of 6 is 2, 2, 1, 1.
  EXPECT_THAT(RowsOfParts(Steps(102, 32, 4, {0, 3}), model), ElementsAre(5, 24));
  EXPECT_THAT(RowsOfParts(Steps(102, 32, 4, {3, 4}), model), ElementsAre(1, 8));
  // A tail of 2 leaves no row for the last replica.
  EXPECT_THAT(RowsOfParts(Steps(98, 32, 4, {3, 4}), model), ElementsAre(8));
  // Batch norm keeps the replicas apart, in groups of two.
  model = ModelFor(16);
  model.max_groups = 2;
  model.computes_replicas_alone = true;
  EXPECT_THAT(RowsOfParts(Steps(102, 32, 4, {0, 3}), model), ElementsAre(1, 4, 8, 16));
}

TEST(RowsOfParts, HasThePiecesOfMicrobatches) {
  const CompiledModel model = ModelFor(12);
  EXPECT_THAT(RowsOfParts(Steps(100, 32, 1, {0, 1}), model), ElementsAre(4, 8, 12));
}

TEST(RowsOfEvaluation, AreThoseOfFullBatchesAndOfTheTail) {
  EXPECT_THAT(RowsOfEvaluation(100, {.parts = 1, .mine = {0, 1}}, 32), ElementsAre(4, 32));
  EXPECT_THAT(RowsOfEvaluation(64, {.parts = 1, .mine = {0, 1}}, 32), ElementsAre(32));
  // 100 samples in 3 parts are 34, 33 and 33.
  EXPECT_THAT(RowsOfEvaluation(100, {.parts = 3, .mine = {0, 2}}, 32), ElementsAre(1, 2, 32));
  EXPECT_THAT(RowsOfEvaluation(0, {.parts = 1, .mine = {0, 1}}, 32), IsEmpty());
}

}  // namespace
}  // namespace trainyard::trainer
