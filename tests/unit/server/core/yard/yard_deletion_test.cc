// Tests what is deleted with a job, and what is kept for other jobs.
#include "server/core/yard/deletion.h"

#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class YardDeletion : public YardTest {
 protected:
  absl::Status Delete(JobId job, bool checkpoints_only = false) {
    return Apply(DeleteJob{job, {.checkpoints = checkpoints_only}, "user:anna"});
  }

  // Returns a job that has ended, with a checkpoint at step 10.
  JobId Ended(const Submission& submission, OutcomeKind kind = OutcomeKind::kSucceeded) {
    const JobId job = Submit(submission);
    Run("lab-1", job);
    TY_CHECK_OK(Apply(CommitCheckpoint{sessions_["lab-1"], {job, 1}, 1, 10, {{"m", 5, "h"}}}));
    const Failure failure{FailureClass::kUserError, "BAD", "bad"};
    TY_CHECK_OK(
        Sync("lab-1", {SeeExit(job, kind, kind == OutcomeKind::kFailed ? failure : Failure{})}));
    TY_CHECK_OK(Sync("lab-1", {}));
    return job;
  }
  static Submission Clone(JobId original) {
    Submission submission = Spec(1);
    submission.cloned_from = original;
    return submission;
  }
  void Cancel(JobId job) { TY_CHECK_OK(Apply(CancelJob{job, "user:anna", ""})); }
};

TEST_F(YardDeletion, AJobGoesWithAllThatIsItsOwn) {
  Join("lab-1", 1);
  const JobId job = Ended(Spec(1));
  ASSERT_TRUE(Delete(job).ok());
  EXPECT_EQ(yard_->FindJob(job), nullptr);
  EXPECT_EQ(yard_->FindAttempt({job, 1}), nullptr);
  EXPECT_THAT(yard_->snapshot().checkpoints, IsEmpty());
  EXPECT_THAT(turn_.delta.deleted_jobs, ElementsAre(job));
  EXPECT_THAT(turn_.delta.deleted_submissions, ElementsAre(job));
  EXPECT_TRUE(HasEvent("JOB_DELETED"));
  EXPECT_TRUE(Delete(job).ok()) << "it is deleted already";
  EXPECT_TRUE(turn_.delta.empty());
  Restart();
  EXPECT_EQ(yard_->snapshot().jobs, store_.Load()->jobs);
  EXPECT_EQ(yard_->FindJob(job), nullptr);
  EXPECT_EQ(Submit(1).value, job.value + 1) << "its number is not given again";
}

TEST_F(YardDeletion, OnlyAJobThatHasEndedGoes) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  EXPECT_EQ(ErrorReason(Delete(job)), "JOB_STATE_CONFLICT");
  EXPECT_EQ(ErrorReason(Delete(job, /*checkpoints_only=*/true)), "JOB_STATE_CONFLICT");
  EXPECT_EQ(Delete(JobId{99}).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(turn_.delta.empty());
}

TEST_F(YardDeletion, AJobCanBeCancelledAndDeletedInOneTurn) {
  const JobId job = Submit(1);
  ASSERT_TRUE(yard_->Apply(CancelJob{job, "user:anna", ""}, now_).ok());
  ASSERT_TRUE(yard_->Apply(DeleteJob{job, {}, "user:anna"}, now_).ok());
  Settle();
  EXPECT_EQ(yard_->FindJob(job), nullptr);
  Join("lab-1", 1);
  EXPECT_EQ(Desired("lab-1"), "");
  // A job that is not on disk yet has no name that any client could know.
  ASSERT_TRUE(
      yard_->Apply(SubmitJob{std::make_shared<Submission>(Spec(1)), "", "", "user:anna"}, now_)
          .ok());
  const JobId next{job.value + 1};
  ASSERT_TRUE(yard_->Apply(CancelJob{next, "user:anna", ""}, now_).ok());
  EXPECT_EQ(yard_->Apply(DeleteJob{next, {}, "user:anna"}, now_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(YardDeletion, CheckpointsAloneCanGo) {
  Join("lab-1", 1);
  const JobId job = Ended(Spec(1));
  ASSERT_TRUE(Delete(job, /*checkpoints_only=*/true).ok());
  EXPECT_EQ(State(job), "SUCCEEDED");
  EXPECT_THAT(yard_->CheckpointsOf(job), IsEmpty());
  EXPECT_TRUE(HasEvent("CHECKPOINTS_DELETED"));
  EXPECT_TRUE(Delete(job, /*checkpoints_only=*/true).ok()) << "there is none left";
  EXPECT_TRUE(turn_.delta.empty());
}

TEST_F(YardDeletion, LogsAndMetricsAloneCanGoOnce) {
  Join("lab-1", 1);
  const JobId job = Ended(Spec(1));
  ASSERT_TRUE(Apply(NoteStreams{{{job, {300, 20}}}}).ok());
  EXPECT_TRUE(turn_.delta.empty()) << "sizes are not stored";
  EXPECT_THAT(turn_.streams_changed, ElementsAre(job));
  EXPECT_EQ(yard_->StoredBy("user:anna"), 325);

  ASSERT_TRUE(Apply(DeleteJob{job, {.logs = true}, "user:anna"}).ok());
  EXPECT_TRUE(HasEvent("LOGS_DELETED"));
  EXPECT_FALSE(HasEvent("METRICS_DELETED"));
  EXPECT_TRUE(Job(job).logs_deleted);
  EXPECT_EQ(yard_->CheckpointsOf(job).size(), 1u);
  EXPECT_EQ(yard_->StoredBy("user:anna"), 25);
  ASSERT_TRUE(Apply(NoteStreams{{{job, {300, 20}}}}).ok());
  EXPECT_EQ(yard_->StoredBy("user:anna"), 25) << "they were measured before they went";
  ASSERT_TRUE(Apply(DeleteJob{job, {.logs = true}, "user:anna"}).ok());
  EXPECT_TRUE(turn_.delta.empty()) << "they are gone already";

  ASSERT_TRUE(Apply(DeleteJob{job, {true, true, true}, "user:anna"}).ok());
  EXPECT_TRUE(HasEvent("METRICS_DELETED"));
  EXPECT_TRUE(HasEvent("CHECKPOINTS_DELETED"));
  EXPECT_EQ(yard_->StoredBy("user:anna"), 0);
  Restart();
  EXPECT_TRUE(Job(job).logs_deleted);
  EXPECT_TRUE(Job(job).metrics_deleted);
}

TEST_F(YardDeletion, ADeletedJobCountsAgainstNobody) {
  Join("lab-1", 1);
  const JobId job = Ended(Spec(1));
  ASSERT_TRUE(Apply(NoteStreams{{{job, {300, 20}}, {JobId{99}, {1, 1}}}}).ok());
  ASSERT_TRUE(Delete(job).ok());
  EXPECT_EQ(yard_->StoredBy("user:anna"), 0);
  ASSERT_TRUE(Apply(NoteStreams{{{job, {300, 20}}}}).ok());
  EXPECT_EQ(yard_->StoredBy("user:anna"), 0);
}

TEST_F(YardDeletion, ACheckpointStaysWhileAJobIsToStartFromIt) {
  Join("lab-1", 1);
  const JobId job = Ended(Spec(1));
  Submission child = Spec(5);  // more devices than there are
  child.parent_checkpoint = CheckpointRef{job, 10};
  const JobId waiting = Submit(child);
  const auto plan = yard_->PlanDeletion({job, {}, ""});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->checkpoints, IsEmpty());
  EXPECT_THAT(plan->kept_checkpoints, ElementsAre(CheckpointRef{job, 10}));
  ASSERT_TRUE(Delete(job).ok());
  EXPECT_EQ(yard_->FindJob(job), nullptr);
  EXPECT_NE(yard_->FindCheckpoint({job, 10}), nullptr);
  Restart();
  EXPECT_NE(yard_->FindCheckpoint({job, 10}), nullptr);
  Cancel(waiting);
  EXPECT_EQ(yard_->FindCheckpoint({job, 10}), nullptr) << "nobody needs it any more";
}

TEST_F(YardDeletion, WhoeverWaitsForItsEndGoesOnWaitingForNothing) {
  Join("lab-1", 1);
  const JobId job = Ended(Spec(1));
  Submission after = Spec(5);
  after.dependencies = {{job, true}};
  const JobId waiting = Submit(after);
  ASSERT_TRUE(Delete(job).ok()) << "it has succeeded, which is all that was asked";
  for (const std::string& reason : yard_->QueueReasons(waiting)) {
    EXPECT_EQ(reason.find("waits for job"), std::string::npos) << reason;
  }
}

TEST_F(YardDeletion, AFailedJobStaysWhileAnotherWaitsForItsSuccess) {
  Join("lab-1", 1);
  const JobId job = Ended(Spec(1), OutcomeKind::kFailed);
  ASSERT_EQ(State(job), "FAILED");
  Submission after = Spec(1);
  after.dependencies = {{job, true}};
  const JobId waiting = Submit(after);
  const absl::Status refused = Delete(job);
  EXPECT_EQ(ErrorReason(refused), "JOB_STATE_CONFLICT");
  EXPECT_NE(refused.message().find("while job 'jobs/2' waits for its success"),
            absl::string_view::npos)
      << refused;
  EXPECT_TRUE(Delete(job, /*checkpoints_only=*/true).ok());
  ASSERT_TRUE(Apply(SuspendJob{waiting, "user:anna", ""}).ok());
  EXPECT_EQ(ErrorReason(Delete(job)), "JOB_STATE_CONFLICT") << "it may be resumed";
  Cancel(waiting);
  EXPECT_TRUE(Delete(job).ok());
}

TEST_F(YardDeletion, TheSpecOfAJobThatWasClonedStays) {
  Join("lab-1", 1);
  const JobId original = Ended(Spec(1));
  const JobId clone = Ended(Clone(original));
  const JobId grandchild = Ended(Clone(clone));
  ASSERT_TRUE(Delete(original).ok());
  ASSERT_TRUE(Delete(clone).ok());
  Restart();
  EXPECT_EQ(FindSubmission(yard_->snapshot(), original).submission->resolved_spec, "spec bytes");
  EXPECT_EQ(FindSubmission(yard_->snapshot(), clone).submission->cloned_from, original);
  ASSERT_TRUE(Delete(grandchild).ok());
  EXPECT_THAT(turn_.delta.deleted_submissions, ElementsAre(original, clone, grandchild))
      << "nobody refers to them any more";
  EXPECT_THAT(yard_->snapshot().kept_submissions, IsEmpty());
  EXPECT_EQ(FindSubmission(yard_->snapshot(), original).submission, nullptr);
}

TEST_F(YardDeletion, AJobThatWasDeletedMeanwhileCannotBeClonedAnyMore) {
  Join("lab-1", 1);
  const JobId original = Ended(Spec(1));
  ASSERT_TRUE(Delete(original).ok());
  const SubmitJob clone{std::make_shared<Submission>(Clone(original)), "", "", "user:anna"};
  EXPECT_EQ(Apply(clone).code(), absl::StatusCode::kNotFound);
}

TEST_F(YardDeletion, TheSubmissionOfAnArrayGoesWithItsLastJob) {
  Submission array = Spec(1);
  array.array_size = 3;
  const JobId first = Submit(array);
  const JobId second{first.value + 1};
  const JobId third{first.value + 2};
  for (const JobId job : {first, second, third}) Cancel(job);
  ASSERT_TRUE(Delete(first).ok());
  EXPECT_THAT(turn_.delta.deleted_submissions, IsEmpty());
  EXPECT_EQ(FindSubmission(yard_->snapshot(), first).id, first) << "the others still have it";
  ASSERT_TRUE(Delete(third).ok());
  Restart();
  ASSERT_TRUE(Delete(second).ok());
  EXPECT_THAT(turn_.delta.deleted_submissions, ElementsAre(first));
}

}  // namespace
}  // namespace trainyard::core
