// Tests that workers get the jobs of those users whose jobs they run, and that a worker without a
// user's account costs that user's jobs nothing.
#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kWhy[] = "this host has no account 'bert'";

class YardOwner : public YardTest {
 protected:
  JobId SubmitFor(const std::string& user) {
    Submission submission = Spec(1);
    submission.user = user;
    return Submit(submission);
  }
  void JoinFor(const std::string& worker, int devices, const std::string& user) {
    sessions_[worker] = absl::StrCat(worker, "/", ++last_session_);
    sequences_[worker] = 0;
    RegisterWorker in{worker, worker, sessions_[worker], "1.0", worker, "10.0.0.1", Cpus(devices)};
    in.run_as_user = user;
    ASSERT_TRUE(Apply(in).ok());
    ASSERT_TRUE(Sync(worker, {}).ok());
  }
  absl::Status SyncRefusing(const std::string& worker, std::vector<ObservedAttempt> attempts,
                            std::map<std::string, std::string> refused) {
    SyncReport report;
    report.session = sessions_[worker];
    report.sequence = ++sequences_[worker];
    report.desired_revision = yard_->DesiredRevision(worker);
    report.attempts = std::move(attempts);
    report.refused_users = std::move(refused);
    return Apply(report);
  }
  ObservedAttempt Refuse(JobId job) {
    return SeeExit(job, OutcomeKind::kFailed,
                   {FailureClass::kTransient, error::kOwnerRefused, kWhy});
  }
  std::vector<std::string> Reasons(JobId job) { return yard_->Explain(job, now_).reasons; }
};

TEST_F(YardOwner, AWorkerOfAUserGetsJobsOfThatUserOnly) {
  JoinFor("annas", 2, "anna");
  const JobId berts = SubmitFor("bert");
  const JobId annas = SubmitFor("anna");
  EXPECT_EQ(State(berts), "QUEUED");
  EXPECT_EQ(State(annas), "STARTING");
  EXPECT_THAT(Reasons(berts), Contains("worker annas runs jobs of anna only (2 devices)"));
  Join("everybodys", 1);
  EXPECT_EQ(State(berts), "STARTING");
}

TEST_F(YardOwner, APreviewSaysWhoseJobsAWorkerRuns) {
  JoinFor("annas", 2, "anna");
  Submission submission = Spec(1);
  submission.user = "bert";
  const Explanation preview = yard_->Preview(submission, now_);
  EXPECT_TRUE(preview.infeasible);
  EXPECT_THAT(preview.reasons, Contains("worker annas runs jobs of anna only (2 devices)"));
  submission.user = "anna";
  EXPECT_THAT(yard_->Preview(submission, now_).reasons, ElementsAre());
}

TEST_F(YardOwner, AJobThatWaitedBeforeItsUserWasNamedIsStillTheUsers) {
  const JobId berts = SubmitFor("bert");
  const JobId annas = SubmitFor("anna");
  JoinFor("annas", 1, "anna");
  EXPECT_EQ(State(berts), "QUEUED");
  EXPECT_EQ(State(annas), "STARTING");
}

TEST_F(YardOwner, AMissingAccountCostsNoRetryAndTheWorkerGetsNoMoreOfThatUser) {
  Join("lab-1", 2);
  const JobId berts = SubmitFor("bert");
  ASSERT_EQ(State(berts), "STARTING");
  ASSERT_TRUE(SyncRefusing("lab-1", {Refuse(berts)}, {{"bert", kWhy}}).ok());
  EXPECT_EQ(State(berts), "QUEUED");
  EXPECT_EQ(Job(berts).retries, 0);
  EXPECT_THAT(
      Reasons(berts),
      Contains(absl::StrCat("worker lab-1 does not run jobs of bert: ", kWhy, " (2 devices)")));
  // Others are not affected, and another worker takes the job.
  const JobId annas = SubmitFor("anna");
  EXPECT_EQ(State(annas), "STARTING");
  Join("lab-2", 1);
  EXPECT_EQ(State(berts), "STARTING");
  EXPECT_EQ(yard_->FindAttempt({berts, 2})->ranks.front().worker, "lab-2");
}

TEST_F(YardOwner, AnAccountThatIsMadeLaterEndsTheRefusal) {
  Join("lab-1", 1);
  const JobId berts = SubmitFor("bert");
  ASSERT_TRUE(SyncRefusing("lab-1", {Refuse(berts)}, {{"bert", kWhy}}).ok());
  ASSERT_EQ(State(berts), "QUEUED");
  ASSERT_TRUE(SyncRefusing("lab-1", {}, {}).ok());
  EXPECT_EQ(State(berts), "STARTING");
}

TEST_F(YardOwner, RefusalsDoNotDrainAWorkerThatServesOthers) {
  Join("lab-1", 1);
  for (int i = 0; i < config_.worker_failures_max + 1; ++i) {
    const std::string user = absl::StrCat("user-", i);
    const JobId job = SubmitFor(user);
    ASSERT_EQ(State(job), "STARTING");
    ASSERT_TRUE(SyncRefusing("lab-1", {Refuse(job)}, {{user, "no account"}}).ok());
    ASSERT_TRUE(Apply(CancelJob{job, "user:anna", ""}).ok());
  }
  EXPECT_EQ(State(SubmitFor("anna")), "STARTING");
}

TEST_F(YardOwner, WhatNoWorkerRunsForItsUserIsRefusedWhenItIsSubmitted) {
  Join("lab-1", 2);
  ASSERT_TRUE(SyncRefusing("lab-1", {}, {{"root", "it runs no jobs of root"}}).ok());
  Submission submission = Spec(1);
  submission.user = "root";
  submission.wait_for_devices = false;
  const auto submit = [&] {
    return yard_
        ->Apply(SubmitJob{std::make_shared<Submission>(submission), "", "", "user:root"}, now_)
        .status();
  };
  const absl::Status refused = submit();
  EXPECT_EQ(ErrorReason(refused), error::kCannotRun);
  EXPECT_EQ(refused.message(),
            "this job can never run here: it needs 1 device of type cpu; all known workers "
            "together have 0 devices, besides 2 of workers that do not run jobs of root; worker "
            "lab-1 does not run jobs of root: it runs no jobs of root; --wait-for-devices queues "
            "it until there are such devices");
  submission.wait_for_devices = true;
  EXPECT_TRUE(submit().ok());
  submission.wait_for_devices = false;
  Join("lab-2", 1);
  EXPECT_TRUE(submit().ok());
}

// The end of an attempt is in a file that its owner may write.
TEST_F(YardOwner, ARefusalThatTheWorkerDoesNotConfirmCostsARetry) {
  Join("lab-1", 1);
  const JobId job = SubmitFor("bert");
  ASSERT_TRUE(SyncRefusing("lab-1", {Refuse(job)}, {{"carl", "no account"}}).ok());
  EXPECT_EQ(Job(job).retries, 1);
  EXPECT_THAT(AttemptState(job, 1), HasSubstr("FAILED"));
}

}  // namespace
}  // namespace trainyard::core
