// Tests that a damaged checkpoint costs a job nothing but steps, and another job's nothing at all.
#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBroken[] = "model.safetensors is missing";

class YardDamage : public YardTest {
 protected:
  // A job on lab-1 that runs and has checkpoints at these steps.
  JobId RunWithCheckpoints(const std::vector<int64_t>& steps) {
    Join("lab-1", 1);
    const JobId job = Submit(1);
    Run("lab-1", job);
    for (const int64_t step : steps) EXPECT_TRUE(Commit(job, step).ok());
    return job;
  }
  absl::Status Commit(JobId job, int64_t step) {
    return Apply(CommitCheckpoint{sessions_["lab-1"],
                                  {job, Job(job).attempt},
                                  Job(job).fencing_token,
                                  step,
                                  {{"model.safetensors", 10, absl::StrCat("hash-", step)}}});
  }
  // The server has looked at the files.
  void Judge(JobId job, int64_t step, const std::string& damage) {
    ASSERT_TRUE(Apply(JudgeCheckpoint{*yard_->FindCheckpoint({job, step}), damage}).ok());
  }
  // The attempt of the job on lab-1 ends before it began, as a worker says for this reason.
  void FailToStart(JobId job, const std::string& reason = error::kCheckpointDamaged) {
    ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed,
                                       {FailureClass::kTransient, reason, "wrong bytes"})})
                    .ok());
  }
  // The newest attempt is lost to something else, and the job is placed again.
  void LoseAttempt(JobId job) {
    ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
    SkipPause(job);
  }
  void SkipPause(JobId job) {
    if (State(job) != "QUEUED") return;
    ASSERT_TRUE(Apply(SuspendJob{job, "user:anna", ""}).ok());
    ASSERT_TRUE(Apply(ResumeJob{job, "user:anna"}).ok());
    ASSERT_EQ(State(job), "STARTING");
  }
  std::vector<int64_t> Steps(JobId job) {
    std::vector<int64_t> steps;
    for (const CheckpointRecord* one : yard_->CheckpointsOf(job)) steps.push_back(one->id.step);
    return steps;
  }
  std::optional<CheckpointRef> ResumesFrom(JobId job) {
    return yard_->FindAttempt({job, Job(job).attempt})->resume_from;
  }
  std::string MessageOf(const std::string& type) {
    std::string message;
    for (const EventRecord& event : events_) {
      if (event.type == type) message = event.message;
    }
    return message;
  }
};

TEST_F(YardDamage, AJobGoesBackFromOneDamagedCheckpointToTheNextAndThenBegins) {
  const JobId job = RunWithCheckpoints({10, 20});
  LoseAttempt(job);
  ASSERT_EQ(ResumesFrom(job), (CheckpointRef{job, 20}));
  Judge(job, 20, kBroken);
  EXPECT_THAT(MessageOf("CHECKPOINT_DAMAGED"),
              "checkpoint at step 20: model.safetensors is missing");
  FailToStart(job);
  EXPECT_EQ(ResumesFrom(job), (CheckpointRef{job, 10})) << "it is placed again at once";
  EXPECT_THAT(MessageOf("JOB_QUEUED"), HasSubstr("the job goes back to 'jobs/1/checkpoints/10'"));
  Judge(job, 10, kBroken);
  FailToStart(job);
  EXPECT_EQ(ResumesFrom(job), std::nullopt);
  EXPECT_THAT(MessageOf("JOB_QUEUED"), HasSubstr("starts from the beginning"));
  EXPECT_THAT(MessageOf("ATTEMPT_PLACED"), HasSubstr("from the beginning"));
  EXPECT_EQ(Job(job).retries, 0);
  EXPECT_EQ(State(job), "STARTING");
}

TEST_F(YardDamage, TheMarkOutlivesTheServer) {
  const JobId job = RunWithCheckpoints({10, 20});
  Judge(job, 20, kBroken);
  Restart();
  EXPECT_EQ(yard_->FindCheckpoint({job, 20})->damage, kBroken);
  ASSERT_TRUE(Register("lab-1", 1).ok());
  LoseAttempt(job);
  EXPECT_EQ(ResumesFrom(job), (CheckpointRef{job, 10}));
}

TEST_F(YardDamage, NoRetryIsUsedUpHoweverOftenItHappens) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.max_retries = 0;
  spec.checkpoints_kept = 10;
  const JobId job = Submit(spec);
  Run("lab-1", job);
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(Commit(job, step).ok());
  LoseAttempt(job);
  for (int64_t step = 6; step >= 1; --step) {
    ASSERT_EQ(ResumesFrom(job), (CheckpointRef{job, step}));
    Judge(job, step, kBroken);
    FailToStart(job);
    ASSERT_EQ(State(job), "STARTING");
  }
  EXPECT_EQ(ResumesFrom(job), std::nullopt);
}

TEST_F(YardDamage, TheWorkersAreNotBlamed) {
  config_.worker_failures_max = 1;
  Restart();
  const JobId job = RunWithCheckpoints({10, 20});
  LoseAttempt(job);
  Judge(job, 20, kBroken);
  FailToStart(job);
  EXPECT_FALSE(HasEvent("WORKER_DRAINING"));
  EXPECT_TRUE(yard_->FindWorker("lab-1")->failed_jobs.empty());
}

TEST_F(YardDamage, AClaimThatTheServerDidNotConfirmCostsARetryAndChangesNothing) {
  const JobId job = RunWithCheckpoints({10, 20});
  LoseAttempt(job);
  FailToStart(job);
  EXPECT_EQ(Job(job).retries, 1);
  EXPECT_TRUE(yard_->FindCheckpoint({job, 20})->is_whole());
  EXPECT_THAT(MessageOf("JOB_QUEUED"), HasSubstr("TRANSIENT CORRUPT_FILE"));
  EXPECT_EQ(yard_->FindWorker("lab-1")->failed_jobs, std::vector<JobId>({job}));
  SkipPause(job);
  EXPECT_EQ(Job(job).attempt, 3);
  EXPECT_EQ(ResumesFrom(job), (CheckpointRef{job, 20}));
}

TEST_F(YardDamage, AJobThatIsToStartFromAnotherOneFailsAtOnceAndNamesWhatIsWhole) {
  const JobId parent = RunWithCheckpoints({10, 20});
  Submission spec = Spec(1);
  spec.parent_checkpoint = CheckpointRef{parent, 20};
  const JobId clone = Submit(spec);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(parent, OutcomeKind::kSucceeded)}).ok());
  ASSERT_EQ(ResumesFrom(clone), (CheckpointRef{parent, 20}));
  Judge(parent, 20, kBroken);
  FailToStart(clone);
  EXPECT_EQ(State(clone), "FAILED");
  const Failure& failure = std::get<job_fsm::Failed>(Job(clone).state).failure;
  EXPECT_EQ(failure.reason, "CHECKPOINT_DAMAGED");
  EXPECT_EQ(failure.message,
            "checkpoint 'jobs/1/checkpoints/20' is damaged on the server: model.safetensors is "
            "missing; whole checkpoints of job 'jobs/1' are at step 10");
  EXPECT_TRUE(yard_->FindWorker("lab-1")->failed_jobs.empty());
}

TEST_F(YardDamage, AJobWhoseOwnCheckpointIsDamagedGoesBackToItsParent) {
  const JobId parent = RunWithCheckpoints({10});
  Submission spec = Spec(1);
  spec.parent_checkpoint = CheckpointRef{parent, 10};
  const JobId clone = Submit(spec);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(parent, OutcomeKind::kSucceeded)}).ok());
  Run("lab-1", clone);
  ASSERT_TRUE(Commit(clone, 5).ok());
  Judge(clone, 5, kBroken);
  LoseAttempt(clone);
  EXPECT_EQ(ResumesFrom(clone), (CheckpointRef{parent, 10}));
}

TEST_F(YardDamage, ASubmissionThatIsToStartFromADamagedOneIsRefused) {
  const JobId job = RunWithCheckpoints({10, 20});
  Judge(job, 20, kBroken);
  Submission spec = Spec(1);
  spec.parent_checkpoint = CheckpointRef{job, 20};
  const absl::Status refused =
      Apply(SubmitJob{std::make_shared<Submission>(spec), "", "", "user:anna"});
  EXPECT_EQ(ErrorReason(refused), "CHECKPOINT_DAMAGED");
  EXPECT_THAT(refused.message(), HasSubstr("whole checkpoints of job 'jobs/1' are at step 10"));
  spec.parent_checkpoint = CheckpointRef{job, 10};
  EXPECT_TRUE(Apply(SubmitJob{std::make_shared<Submission>(spec), "", "", "user:anna"}).ok());
}

TEST_F(YardDamage, TheSameStepIsWrittenAnew) {
  const JobId job = RunWithCheckpoints({10, 20});
  Judge(job, 20, kBroken);
  LoseAttempt(job);
  Run("lab-1", job);
  ASSERT_TRUE(Commit(job, 20).ok());
  EXPECT_TRUE(yard_->FindCheckpoint({job, 20})->is_whole());
  EXPECT_EQ(yard_->FindCheckpoint({job, 20})->attempt, 2);
  LoseAttempt(job);
  EXPECT_EQ(ResumesFrom(job), (CheckpointRef{job, 20}));
}

TEST_F(YardDamage, DamagedOnesTakeNoPlaceOfThoseThatAreKept) {
  const JobId job = RunWithCheckpoints({10, 20});
  Judge(job, 20, kBroken);
  ASSERT_TRUE(Commit(job, 30).ok());
  EXPECT_THAT(Steps(job), ElementsAre(10, 20, 30)) << "two whole ones are kept";
  ASSERT_TRUE(Commit(job, 40).ok());
  EXPECT_THAT(Steps(job), ElementsAre(30, 40));
}

TEST_F(YardDamage, ADamagedOneIsNotTheBest) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.keeps_best = true;
  spec.checkpoints_kept = 1;
  const JobId job = Submit(spec);
  Run("lab-1", job);
  for (const auto& [step, accuracy] : {std::pair{10, 0.9}, {20, 0.5}, {30, 0.1}}) {
    ASSERT_TRUE(
        Apply(CommitCheckpoint{
                  sessions_["lab-1"], {job, 1}, 1, step, {}, CheckpointEvaluation{1, accuracy}})
            .ok());
    if (step == 20) Judge(job, 10, kBroken);
  }
  EXPECT_THAT(Steps(job), ElementsAre(20, 30));
}

TEST_F(YardDamage, AVerdictOnARecordThatHasChangedIsDropped) {
  const JobId job = RunWithCheckpoints({10, 20});
  const CheckpointRecord seen = *yard_->FindCheckpoint({job, 20});
  Judge(job, 20, kBroken);
  LoseAttempt(job);
  Run("lab-1", job);
  ASSERT_TRUE(Commit(job, 20).ok());
  ASSERT_TRUE(Apply(JudgeCheckpoint{seen, kBroken}).ok());
  EXPECT_TRUE(yard_->FindCheckpoint({job, 20})->is_whole());
  CheckpointRecord gone = seen;
  gone.id.step = 99;
  EXPECT_EQ(ErrorReason(Apply(JudgeCheckpoint{gone, ""})), "NOT_FOUND");
}

TEST_F(YardDamage, AVerdictCountsAlsoIfACopyWasMadeMeanwhile) {
  const JobId job = RunWithCheckpoints({10, 20});
  const CheckpointRecord seen = *yard_->FindCheckpoint({job, 20});
  ASSERT_TRUE(Apply(NoteCheckpointCopy{seen, "s3://lab/yard/checkpoints/1/20", ""}).ok());
  ASSERT_TRUE(Apply(JudgeCheckpoint{seen, kBroken}).ok());
  EXPECT_EQ(yard_->FindCheckpoint({job, 20})->damage, kBroken);
}

TEST_F(YardDamage, OneThatIsWholeAgainIsUsedAgain) {
  const JobId job = RunWithCheckpoints({10, 20});
  Judge(job, 20, kBroken);
  Judge(job, 20, "");
  EXPECT_THAT(MessageOf("CHECKPOINT_WHOLE"), "checkpoint at step 20 is whole again");
  LoseAttempt(job);
  EXPECT_EQ(ResumesFrom(job), (CheckpointRef{job, 20}));
}

}  // namespace
}  // namespace trainyard::core
