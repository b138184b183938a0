// Tests which checkpoints are kept.
#include <gmock/gmock.h>

#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;

using YardCheckpoints = YardTest;

TEST_F(YardCheckpoints, TheNewestCheckpointsStay) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  CommitCheckpoint commit{sessions_["lab-1"], {job, 1}, 1, 0, {}};
  for (const int64_t step : {10, 20, 30}) {
    commit.step = step;
    ASSERT_TRUE(Apply(commit).ok());
  }
  EXPECT_EQ(turn_.delta.deleted_checkpoints, std::vector<CheckpointRef>({{job, 10}}));
  const auto reply = yard_->Apply(commit, now_);
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->existed);
  std::vector<int64_t> steps;
  for (const CheckpointRecord* checkpoint : yard_->CheckpointsOf(job)) {
    steps.push_back(checkpoint->id.step);
  }
  EXPECT_THAT(steps, ElementsAre(20, 30));
}

TEST_F(YardCheckpoints, TheStateOfACopyIsNoted) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  const CommitCheckpoint commit{sessions_["lab-1"], {job, 1}, 1, 10, {{"model", 5, "xxh3-128:00"}}};
  ASSERT_TRUE(Apply(commit).ok());
  const CheckpointRecord seen = *yard_->FindCheckpoint({job, 10});
  ASSERT_TRUE(Apply(NoteCheckpointCopy{seen, "", "the bucket is away"}).ok());
  EXPECT_EQ(yard_->FindCheckpoint({job, 10})->copy_failure, "the bucket is away");
  ASSERT_TRUE(Apply(NoteCheckpointCopy{seen, "s3://lab/checkpoints/1/10", ""}).ok());
  EXPECT_THAT(turn_.delta.checkpoints, ElementsAre(*yard_->FindCheckpoint({job, 10})));
  EXPECT_EQ(yard_->FindCheckpoint({job, 10})->copy, "s3://lab/checkpoints/1/10");
  EXPECT_EQ(yard_->FindCheckpoint({job, 10})->copy_failure, "");
  CheckpointRecord other = seen;
  other.files[0].size = 6;
  ASSERT_TRUE(Apply(NoteCheckpointCopy{other, "s3://other", ""}).ok());
  EXPECT_EQ(yard_->FindCheckpoint({job, 10})->copy, "s3://lab/checkpoints/1/10")
      << "a note about other files under this name is dropped";
  other.id.step = 99;
  EXPECT_EQ(ErrorReason(Apply(NoteCheckpointCopy{other, "s3://other", ""})), "NOT_FOUND");
}

TEST_F(YardCheckpoints, OutputsAreNoCheckpoint) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  const CheckpointRef outputs{job, kOutputsStep};
  CommitCheckpoint commit{sessions_["lab-1"], {job, 1}, 1, 10, {}};
  ASSERT_TRUE(Apply(commit).ok());
  commit.step = kOutputsStep;
  commit.left_out = "'a' is a symbolic link";
  ASSERT_TRUE(Apply(commit).ok());
  EXPECT_EQ(yard_->FindCheckpoint(outputs), nullptr) << "there is only word of what was left out";
  EXPECT_EQ(events_.back().type, "OUTPUTS_LEFT_OUT");
  commit.left_out.clear();
  commit.files = {{"results/a.csv", 5, "xxh3-128:00"}};
  ASSERT_TRUE(Apply(commit).ok());
  ASSERT_NE(yard_->FindCheckpoint(outputs), nullptr);
  EXPECT_EQ(yard_->FindCheckpoint(outputs)->attempt, 1);
  EXPECT_EQ(yard_->CheckpointsOf(job).size(), 1u);
  const auto again = yard_->Apply(commit, now_);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->existed);
  for (const int64_t step : {20, 30, 40}) {
    CommitCheckpoint newer = commit;
    newer.step = step;
    ASSERT_TRUE(Apply(newer).ok());
  }
  EXPECT_NE(yard_->FindCheckpoint(outputs), nullptr) << "newer checkpoints leave them";
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kSucceeded)}).ok());
  ASSERT_TRUE(Apply(DeleteJob{job, {.checkpoints = true}, "user:anna"}).ok());
  EXPECT_TRUE(yard_->CheckpointsOf(job).empty());
  EXPECT_NE(yard_->FindCheckpoint(outputs), nullptr);
  ASSERT_TRUE(Apply(DeleteJob{job, {}, "user:anna"}).ok());
  EXPECT_EQ(yard_->FindCheckpoint(outputs), nullptr);
}

TEST_F(YardCheckpoints, TheBestCheckpointStaysBesideTheNewest) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.keeps_best = true;
  const JobId job = Submit(spec);
  Run("lab-1", job);
  const auto commit = [&](int64_t step, std::optional<CheckpointEvaluation> evaluation) {
    ASSERT_TRUE(
        Apply(CommitCheckpoint{sessions_["lab-1"], {job, 1}, 1, step, {}, evaluation}).ok());
  };
  const auto steps = [&] {
    std::vector<int64_t> found;
    for (const CheckpointRecord* one : yard_->CheckpointsOf(job)) found.push_back(one->id.step);
    return found;
  };
  commit(10, CheckpointEvaluation{.loss = 1, .accuracy = 0.5});
  commit(20, CheckpointEvaluation{.loss = 0.1, .accuracy = 0.4});
  commit(30, std::nullopt);
  EXPECT_THAT(steps(), ElementsAre(10, 20, 30)) << "the best and the newest two";
  commit(40, CheckpointEvaluation{.loss = 1, .accuracy = 0.5});
  EXPECT_THAT(steps(), ElementsAre(10, 30, 40)) << "of equal ones the earlier is the best";
  commit(50, CheckpointEvaluation{.loss = 1, .accuracy = 0.6});
  EXPECT_THAT(steps(), ElementsAre(40, 50)) << "a better one came, and the old best went";
  commit(60, std::nullopt);
  commit(70, std::nullopt);
  EXPECT_THAT(steps(), ElementsAre(50, 60, 70));
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kSucceeded)}).ok());
  EXPECT_THAT(steps(), ElementsAre(50, 60, 70)) << "the end of the job leaves it";
}

TEST_F(YardCheckpoints, TheBestCheckpointOfANetworkThatPredictsTokensHasTheLowestLoss) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.keeps_best = true;
  spec.judged_by_loss = true;
  spec.checkpoints_kept = 1;
  const JobId job = Submit(spec);
  Run("lab-1", job);
  const std::vector<double> losses = {3, 2, 4, 5};
  for (size_t i = 0; i < losses.size(); ++i) {
    const CheckpointEvaluation evaluation{losses[i], /*accuracy=*/losses[i] / 10};
    ASSERT_TRUE(
        Apply(CommitCheckpoint{
                  sessions_["lab-1"], {job, 1}, 1, static_cast<int64_t>(i) * 10, {}, evaluation})
            .ok());
  }
  EXPECT_NE(yard_->FindCheckpoint({job, 10}), nullptr);
  EXPECT_NE(yard_->FindCheckpoint({job, 30}), nullptr);
  EXPECT_EQ(yard_->CheckpointsOf(job).size(), 2u);
}

TEST_F(YardCheckpoints, ACheckpointThatACloneStartsFromStaysUntilTheCloneHasEnded) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  CommitCheckpoint commit{sessions_["lab-1"], {job, 1}, 1, 10, {}};
  ASSERT_TRUE(Apply(commit).ok());
  Submission spec = Spec(1);
  spec.parent_checkpoint = CheckpointRef{job, 10};
  const JobId clone = Submit(spec);
  for (const int64_t step : {20, 30}) {
    commit.step = step;
    ASSERT_TRUE(Apply(commit).ok());
  }
  EXPECT_NE(yard_->FindCheckpoint({job, 10}), nullptr);
  ASSERT_TRUE(Apply(CancelJob{clone, "user:anna", ""}).ok());
  EXPECT_EQ(yard_->FindCheckpoint({job, 10}), nullptr);
  const auto refused =
      yard_->Apply(SubmitJob{std::make_shared<Submission>(spec), "", "", "user:anna"}, now_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(YardCheckpoints, InitialWeightsAreSentToTheFirstAttemptsAndStayMeanwhile) {
  Join("lab-1", 2);
  const JobId job = Submit(1);
  Run("lab-1", job);
  CommitCheckpoint commit{sessions_["lab-1"], {job, 1}, 1, 10, {}};
  ASSERT_TRUE(Apply(commit).ok());
  Submission spec = Spec(1);
  spec.init_checkpoint = CheckpointRef{job, 10};
  const JobId tuned = Submit(spec);
  for (const int64_t step : {20, 30}) {
    commit.step = step;
    ASSERT_TRUE(Apply(commit).ok());
  }
  EXPECT_NE(yard_->FindCheckpoint({job, 10}), nullptr);
  const auto desired = yard_->DesiredFor("lab-1");
  ASSERT_EQ(desired.size(), 2u);
  EXPECT_EQ(desired[1].init_from, (CheckpointRef{job, 10}));
  EXPECT_EQ(desired[1].resume_from, std::nullopt);
  // An attempt that resumes from a checkpoint of its own does not need the weights.
  ASSERT_TRUE(
      Sync("lab-1", {See(job, ObservedState::kRunning), See(tuned, ObservedState::kRunning)}).ok());
  ASSERT_TRUE(Apply(CommitCheckpoint{sessions_["lab-1"], {tuned, 1}, 1, 5, {}}).ok());
  Restart();
  ASSERT_TRUE(Register("lab-1", 2).ok());
  ASSERT_TRUE(
      Sync("lab-1", {See(job, ObservedState::kRunning),
                     SeeExit(tuned, OutcomeKind::kFailed, {FailureClass::kTransient, "X", "x"})})
          .ok());
  Advance(6 * kSecond);
  ASSERT_EQ(Job(tuned).attempt, 2);
  for (const DesiredAttempt& attempt : yard_->DesiredFor("lab-1")) {
    if (attempt.attempt != AttemptId{tuned, 2}) continue;
    EXPECT_EQ(attempt.resume_from, (CheckpointRef{tuned, 5}));
    EXPECT_EQ(attempt.init_from, std::nullopt);
  }
  EXPECT_NE(yard_->FindCheckpoint({job, 10}), nullptr);
  ASSERT_TRUE(Apply(CancelJob{tuned, "user:anna", ""}).ok());
  ASSERT_TRUE(Sync("lab-1", {See(job, ObservedState::kRunning)}).ok());
  EXPECT_EQ(yard_->FindCheckpoint({job, 10}), nullptr);
}

}  // namespace
}  // namespace trainyard::core
