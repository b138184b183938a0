// Tests that an imported job is a record like that of any job that has ended, and nothing more.
#include <gmock/gmock.h>

#include "common/base/bundle_errors.h"
#include "common/base/errors.h"
#include "server/core/yard/inputs.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class YardImport : public YardTest {
 protected:
  // A job that ran on lab-1 of another server, with two attempts.
  static std::shared_ptr<ImportedJob> Elsewhere() {
    auto imported = std::make_shared<ImportedJob>();
    auto submission = std::make_shared<Submission>(Spec(4));
    submission->import_origin = "origin";
    submission->work = {"work", 10};
    imported->job.submission = std::move(submission);
    imported->job.state = job_fsm::Succeeded{};
    imported->job.start_us = 10 * kSecond;
    imported->job.end_us = 20 * kSecond;
    imported->job.attempt = 2;
    imported->job.fencing_token = 2;
    for (const int32_t number : {1, 2}) {
      AttemptRecord attempt;
      attempt.id.number = number;
      attempt.fencing_token = number;
      if (number == 1) {
        attempt.state = attempt_fsm::Lost{};
      } else {
        attempt.state = attempt_fsm::Succeeded{};
      }
      attempt.ranks = {{0, "lab-1", "cpu-0"}};
      imported->attempts.push_back(std::move(attempt));
    }
    imported->events = {{0, 5 * kSecond, "", "JOB_QUEUED", "", "user:mia: submitted"},
                        {0, 20 * kSecond, "/attempts/2", "ATTEMPT_SUCCEEDED", "", ""}};
    return imported;
  }
  ImportJob Input(const std::string& request_id = "r", const std::string& hash = "h") {
    return {Elsewhere(), request_id, hash, "user:anna"};
  }
  JobId Import(const std::string& request_id = "r") {
    const auto reply = yard_->Apply(Input(request_id), now_);
    TY_CHECK_OK(reply.status());
    Settle();
    return reply->job;
  }
  absl::Status Commit(JobId job, int64_t step, int64_t bytes = 5) {
    CommitImport input;
    input.checkpoint = {job, step};
    input.files = {{"model", bytes, "hash"}};
    input.actor = "user:anna";
    return Apply(input);
  }
};

TEST_F(YardImport, ItIsThereAndOccupiesNothing) {
  Join("lab-1", 1);
  const JobId job = Import();
  EXPECT_EQ(State(job), "SUCCEEDED");
  EXPECT_EQ(Job(job).create_us, now_.wall_us);
  EXPECT_EQ(Job(job).end_us, 20 * kSecond);
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(AttemptState(job, 2), "SUCCEEDED");
  EXPECT_EQ(Desired("lab-1"), "") << "the worker of that name has no part in it";
  EXPECT_THAT(yard_->HoldersOn("lab-1"), IsEmpty());
  ASSERT_THAT(turn_.delta.events, SizeIs(3));
  EXPECT_EQ(turn_.delta.events[0].resource, JobName(job));
  EXPECT_EQ(turn_.delta.events[0].time_us, 5 * kSecond);
  EXPECT_EQ(turn_.delta.events[0].actor, kImportedActor);
  EXPECT_EQ(turn_.delta.events[1].resource, AttemptName({job, 2}));
  EXPECT_EQ(turn_.delta.events[2].type, "JOB_IMPORTED");
  EXPECT_EQ(turn_.delta.events[2].actor, "user:anna");
  const JobId next = Submit(1);
  Run("lab-1", next);
  EXPECT_EQ(State(next), "RUNNING") << "the device was free";

  const Snapshot before = yard_->snapshot();
  Restart();
  EXPECT_EQ(yard_->snapshot().jobs.at(job), before.jobs.at(job));
  EXPECT_EQ(Desired("lab-1"), AttemptName({next, 1}) + " RUN");
}

TEST_F(YardImport, ARepeatedRequestMakesNoSecondJob) {
  const JobId job = Import();
  EXPECT_EQ(Import(), job);
  EXPECT_TRUE(turn_.delta.empty());
  EXPECT_EQ(ErrorReason(Apply(Input("r", "other"))), "REQUEST_ID_REUSED");
  EXPECT_NE(Import(""), job);
  EXPECT_NE(Import(""), JobId{2});
  for (int round = 0; round < 2; ++round) {
    const JobId present = Import();
    ASSERT_TRUE(Apply(DeleteJob{present, {}, "user:anna"}).ok());
    const JobId again = Import();
    EXPECT_NE(again, present);
    EXPECT_EQ(Import(), again);
    Restart();
    EXPECT_EQ(Import(), again);
  }
}

TEST_F(YardImport, ItsCheckpointsStayAndAreStartedFrom) {
  Join("lab-1", 1);
  const JobId job = Import();
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(Commit(job, step).ok());
  EXPECT_THAT(yard_->CheckpointsOf(job), SizeIs(4)) << "keep.last is 2";
  EXPECT_EQ(yard_->StoredBy("user:anna"), 20);
  ASSERT_TRUE(Commit(job, 40).ok());
  EXPECT_TRUE(turn_.delta.empty()) << "it was there";
  Submission child = Spec(1);
  child.parent_checkpoint = CheckpointRef{job, 20};
  const JobId next = Submit(child);
  EXPECT_EQ(yard_->FindAttempt({next, 1})->resume_from, child.parent_checkpoint);
  Run("lab-1", next);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(next, OutcomeKind::kSucceeded)}).ok());
  EXPECT_THAT(yard_->CheckpointsOf(job), SizeIs(4)) << "its end cleans nothing up";
}

TEST_F(YardImport, NothingIsAddedToAJobThatRanHere) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  EXPECT_EQ(ErrorReason(Commit(job, 10)), error::kNotImported);
  EXPECT_TRUE(absl::IsNotFound(Commit(JobId{7}, 10)));
  EXPECT_EQ(ErrorReason(yard_->CheckImport(job, 1).status()), error::kNotImported);
  auto imported = Elsewhere();
  imported->attempts.clear();
  imported->job.attempt = 0;
  const auto reply = yard_->Apply(ImportJob{imported, "", "", "user:anna"}, now_);
  ASSERT_TRUE(reply.ok());
  Settle();
  EXPECT_TRUE(absl::IsFailedPrecondition(Commit(reply->job, 10))) << "it never ran";
}

TEST_F(YardImport, QuotasHold) {
  QuotaRecord quota;
  quota.subject = "user:anna";
  quota.stored_bytes = 10;
  quota.submits_per_minute = 2;
  ASSERT_TRUE(Apply(SetQuota{quota, "user:root"}).ok());
  const JobId job = Import();
  ASSERT_TRUE(Commit(job, 10, 6).ok());
  EXPECT_EQ(ErrorReason(Commit(job, 20, 6)), "QUOTA_EXCEEDED");
  ASSERT_TRUE(Commit(job, 20, 4).ok());
  EXPECT_EQ(ErrorReason(Apply(Input("s"))), "QUOTA_EXCEEDED") << "nothing is left";
  quota.stored_bytes = 0;
  ASSERT_TRUE(Apply(SetQuota{quota, "user:root"}).ok());
  ASSERT_TRUE(Apply(Input("s")).ok());
  EXPECT_EQ(ErrorReason(Apply(Input("t"))), "QUOTA_EXCEEDED") << "they come too fast";
}

}  // namespace
}  // namespace trainyard::core
