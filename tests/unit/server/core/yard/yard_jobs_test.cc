// Tests what users can request for jobs, and the effects.
#include <gmock/gmock.h>

#include <algorithm>

#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using YardJobs = YardTest;

const Failure kPeerLost{FailureClass::kTransient, "PEER_LOST", "peer lost"};

TEST_F(YardJobs, AJobGoesThroughItsLife) {
  Join("lab-1", 2);
  const JobId job = Submit(2);
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
  EXPECT_EQ(turn_.desired_changed, std::set<std::string>{"lab-1"});
  ASSERT_TRUE(Sync("lab-1", {See(job, ObservedState::kStarting)}).ok());
  EXPECT_EQ(AttemptState(job, 1), "STARTING");
  Run("lab-1", job);
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(Job(job).start_us, now_.wall_us);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(job), "SUCCEEDED");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 REMOVE");
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(Desired("lab-1"), "");
  EXPECT_TRUE(yard_->HoldersOn("lab-1").empty());
}

TEST_F(YardJobs, AcknowledgedSubmitsAreIdempotent) {
  const auto submit = [&](const std::string& request, const std::string& hash) {
    return yard_->Apply(
        SubmitJob{std::make_shared<Submission>(Spec(1)), request, hash, "user:anna"}, now_);
  };
  const auto first = submit("r1", "h1");
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->existed);
  const auto again = submit("r1", "h1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->job, first->job);
  EXPECT_TRUE(again->existed);
  EXPECT_EQ(ErrorReason(submit("r1", "h2").status()), "REQUEST_ID_REUSED");
  Settle();
  Restart();
  EXPECT_EQ(submit("r1", "h1")->job, first->job);
  EXPECT_EQ(yard_->snapshot().jobs.size(), 1u);
}

TEST_F(YardJobs, TheHeadOfTheQueueIsNotOvertaken) {
  Join("lab-1", 2);
  const JobId first = Submit(1);
  const JobId wide = Submit(2);
  Submission fixed = Spec(1);
  fixed.preemptible = false;  // otherwise it could start early as a guest
  const JobId narrow = Submit(fixed);
  EXPECT_EQ(State(first), "STARTING");
  EXPECT_THAT(yard_->QueueReasons(wide),
              ElementsAre("needs 2 devices of type cpu; 1 of 2 is free (jobs/1 holds 1)"));
  EXPECT_THAT(yard_->QueueReasons(narrow),
              ElementsAre("needs 1 device of type cpu; 0 of 2 are free (jobs/1 holds 1)",
                          "1 device is free, but kept for jobs/2, which is ahead; when it starts "
                          "is not known",
                          "1 job is ahead"));
  EXPECT_EQ(turn_.reasons_changed, std::set<JobId>{narrow});
  Run("lab-1", first);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(first, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(wide), "STARTING");
  EXPECT_EQ(State(narrow), "QUEUED");
  EXPECT_TRUE(yard_->QueueReasons(wide).empty());
}

TEST_F(YardJobs, TellsWhyAJobWouldWaitBeforeItIsSubmitted) {
  EXPECT_THAT(yard_->Preview(Spec(1), now_).reasons, Contains("no worker has registered"));
  Join("lab-1", 2);
  EXPECT_THAT(yard_->Preview(Spec(2), now_).reasons, IsEmpty());
  Submit(2);
  EXPECT_THAT(yard_->Preview(Spec(1), now_).reasons, ElementsAre(HasSubstr("jobs/1")));
  EXPECT_THAT(yard_->Preview(Spec(3), now_).reasons,
              ElementsAre(HasSubstr("can never start here")));
  EXPECT_EQ(yard_->snapshot().jobs.size(), 1u);
}

TEST_F(YardJobs, CancelInEveryState) {
  EXPECT_EQ(ErrorReason(Apply(CancelJob{JobId{7}, "user:anna", ""})), "NOT_FOUND");
  const JobId queued = Submit(1);
  ASSERT_TRUE(Apply(CancelJob{queued, "user:anna", "typo"}).ok());
  EXPECT_EQ(State(queued), "CANCELLED");
  ASSERT_TRUE(Apply(CancelJob{queued, "user:anna", ""}).ok()) << "fine where it is so already";

  Join("lab-1", 1);
  const JobId running = Submit(1);
  Run("lab-1", running);
  ASSERT_TRUE(Apply(CancelJob{running, "user:anna", ""}).ok());
  EXPECT_EQ(State(running), "STOPPING");
  EXPECT_EQ(Job(running).stop_reason, StopReason::kCancel);
  EXPECT_EQ(Desired("lab-1"), "jobs/2/attempts/1 STOP CANCEL");
  ASSERT_TRUE(Sync("lab-1", {See(running, ObservedState::kStopping)}).ok());
  EXPECT_EQ(State(running), "STOPPING");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(running, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(running), "CANCELLED");
  EXPECT_EQ(AttemptState(running, 1), "CANCELLED");

  ASSERT_TRUE(Sync("lab-1", {}).ok());
  const JobId done = Submit(1);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(done, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(done), "SUCCEEDED");
  EXPECT_EQ(ErrorReason(Apply(CancelJob{done, "user:anna", ""})), "JOB_STATE_CONFLICT");
}

TEST_F(YardJobs, CancelBeforeTheWorkerStartedIt) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  ASSERT_TRUE(Apply(CancelJob{job, "user:anna", ""}).ok());
  EXPECT_EQ(State(job), "STOPPING");
  // A report that was written before the worker had read the order to stop proves nothing.
  SyncReport early{sessions_["lab-1"], ++sequences_["lab-1"], 1, {}, {}};
  ASSERT_TRUE(Apply(early).ok());
  EXPECT_EQ(State(job), "STOPPING");
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(State(job), "CANCELLED");
}

TEST_F(YardJobs, SuccessThatCrossesACancelCounts) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(CancelJob{job, "user:anna", ""}).ok());
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(job), "SUCCEEDED");
}

TEST_F(YardJobs, SuspendAndResumeKeepThePlaceAndTheCheckpoint) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  const JobId second = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(SuspendJob{job, "user:anna", ""}).ok());
  CommitCheckpoint commit{sessions_["lab-1"], {job, 1}, 1, 40, {{"model.safetensors", 9, "h"}}};
  ASSERT_TRUE(Apply(commit).ok());
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(job), "SUSPENDED");
  EXPECT_EQ(AttemptState(job, 1), "PREEMPTED");
  EXPECT_EQ(State(second), "STARTING");
  ASSERT_TRUE(Apply(ResumeJob{job, "user:anna"}).ok());
  EXPECT_EQ(State(job), "QUEUED");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(second, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Job(job).attempt, 2);
  EXPECT_EQ(Job(job).fencing_token, 2);
  EXPECT_EQ(yard_->FindAttempt({job, 2})->resume_from, (CheckpointRef{job, 40}));
}

TEST_F(YardJobs, TheEndWaitsForTheStreamsButNotForEver) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  const JobId next = Submit(1);
  Run("lab-1", job);
  ObservedAttempt exited = SeeExit(job, OutcomeKind::kSucceeded);
  exited.drained = false;
  ASSERT_TRUE(Sync("lab-1", {exited}).ok());
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(State(next), "STARTING") << "the devices are free at once";
  EXPECT_EQ(yard_->NextDeadline(), now_.uptime_us + config_.lease_us);
  for (int64_t waited = 0; waited < config_.drain_limit_us; waited += 10 * kSecond) {
    EXPECT_EQ(State(job), "RUNNING");
    Advance(10 * kSecond);
    ASSERT_TRUE(Sync("lab-1", {exited}).ok());
  }
  EXPECT_EQ(State(job), "SUCCEEDED");
  EXPECT_TRUE(HasEvent("ATTEMPT_NOT_DRAINED"));
}

TEST_F(YardJobs, ATransientFailureBacksOffAndKeepsThePlace) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_EQ(Job(job).retries, 1);
  EXPECT_THAT(yard_->QueueReasons(job),
              ElementsAre("backoff until 14:13:25 UTC after a transient failure"));
  EXPECT_EQ(yard_->NextDeadline(), now_.uptime_us + 5 * kSecond);
  Advance(5 * kSecond - 1);
  EXPECT_EQ(State(job), "QUEUED");
  Advance(1);
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Job(job).fencing_token, 2);
}

TEST_F(YardJobs, RetriesRunOut) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.max_retries = 1;
  const JobId job = Submit(spec);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
  Advance(5 * kSecond);
  ASSERT_EQ(State(job), "STARTING");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
  EXPECT_EQ(State(job), "FAILED");
  EXPECT_EQ(std::get<job_fsm::Failed>(Job(job).state).failure.message,
            "peer lost (after 1 of 1 retry)");
}

// A rank that dies now and then must not end a training of weeks, on however many workers.
TEST_F(YardJobs, ProgressBeginsANewCountOfFailures) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  Submission spec = Spec(1);
  spec.max_retries = 1;
  const JobId job = Submit(spec);
  for (int64_t attempt = 1; attempt <= 20; ++attempt) {
    ASSERT_EQ(State(job), "STARTING") << attempt;
    const std::string worker =
        yard_->FindAttempt({job, static_cast<int32_t>(attempt)})->ranks[0].worker;
    Run(worker, job);
    ASSERT_TRUE(Apply(CommitCheckpoint{sessions_[worker],
                                       {job, Job(job).attempt},
                                       Job(job).fencing_token,
                                       10 * attempt,
                                       {}})
                    .ok());
    ASSERT_TRUE(Sync(worker, {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
    ASSERT_EQ(State(job), "QUEUED") << attempt;
    EXPECT_EQ(Job(job).retries, 1);
    EXPECT_EQ(Job(job).failures, attempt);
    Advance(5 * kSecond);  // the pause does not grow
  }
  // The next attempt writes no checkpoint, and the retry after the last one counts against it.
  const std::string worker = yard_->FindAttempt({job, Job(job).attempt})->ranks[0].worker;
  ASSERT_TRUE(Sync(worker, {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
  EXPECT_NE(State(job), "QUEUED");
}

TEST_F(YardJobs, AUserErrorFailsAtOnce) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  const Failure bad{FailureClass::kUserError, "DATASET_NOT_FOUND", "no such data"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, bad)}).ok());
  EXPECT_EQ(State(job), "FAILED");
  EXPECT_EQ(std::get<job_fsm::Failed>(Job(job).state).failure, bad);
}

TEST_F(YardJobs, TheSameFailureOnTwoWorkersHoldsTheJob) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
  ASSERT_TRUE(Apply(CordonWorker{"lab-1", "user:op", "suspicious"}).ok());
  Join("lab-2", 1);
  Advance(5 * kSecond);
  ASSERT_EQ(Desired("lab-2"), "jobs/1/attempts/2 RUN");
  ASSERT_TRUE(Sync("lab-2", {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
  EXPECT_EQ(State(job), "SUSPENDED");
  EXPECT_EQ(std::get<job_fsm::Suspended>(Job(job).state).failure->failure_class,
            FailureClass::kPoison);
  EXPECT_EQ(Job(job).stop_reason, StopReason::kNone) << "nobody asked for it";
  ASSERT_TRUE(Apply(ResumeJob{job, "user:anna"}).ok());
  EXPECT_EQ(State(job), "STARTING");
}

TEST_F(YardJobs, AHardwareFailureMovesToAnotherDeviceForFree) {
  Join("lab-1", 2);
  const JobId job = Submit(1);
  const Failure xid{FailureClass::kHardware, "XID_79", "GPU has fallen off the bus"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, xid)}).ok());
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Job(job).retries, 0);
  EXPECT_EQ(yard_->FindAttempt({job, 1})->ranks[0].device, "cpu-0");
  EXPECT_EQ(yard_->FindAttempt({job, 2})->ranks[0].device, "cpu-1");
}

TEST_F(YardJobs, TheTimeLimitCountsRunTimeOverAllAttempts) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.time_limit_us = 20 * kSecond;
  const JobId job = Submit(spec);
  Advance(8 * kSecond);  // STARTING does not count
  Run("lab-1", job);
  Advance(8 * kSecond);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, kPeerLost)}).ok());
  EXPECT_EQ(Job(job).run_time_us, 8 * kSecond);
  Advance(5 * kSecond);
  Run("lab-1", job);
  EXPECT_EQ(yard_->NextDeadline(), now_.uptime_us + 12 * kSecond);
  CommitCheckpoint commit{sessions_["lab-1"], {job, 2}, 2, 40, {}};
  ASSERT_TRUE(Apply(commit).ok());
  Advance(12 * kSecond);
  EXPECT_EQ(State(job), "STOPPING");
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/2 STOP TIME_LIMIT");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(job), "FAILED");
  const Failure failure = std::get<job_fsm::Failed>(Job(job).state).failure;
  EXPECT_EQ(failure.failure_class, FailureClass::kUserError);
  EXPECT_EQ(failure.reason, "TIME_LIMIT");
  EXPECT_EQ(failure.message.substr(0, 13), "time limit of");
  EXPECT_NE(failure.message.find("reached; last checkpoint at step 40"), std::string::npos);
}

TEST_F(YardJobs, DrainingAWorkerQueuesItsJobsAgain) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(DrainWorker{"lab-1", "user:op", "new kernel"}).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
  EXPECT_EQ(yard_->DesiredFor("lab-1")[0].checkpoint_request, 1);
  ASSERT_TRUE(Apply(CommitCheckpoint{sessions_["lab-1"], {job, 1}, 1, 40, {}}).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP DRAIN");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_THAT(yard_->QueueReasons(job), ElementsAre("needs 1 device of type cpu; 0 of 1 are free",
                                                    "worker lab-1 is draining (1 device)"));
  ASSERT_TRUE(Apply(UncordonWorker{"lab-1", "user:op"}).ok());
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Apply(CordonWorker{"lab-9", "user:op", ""}).code(), absl::StatusCode::kNotFound);
}

TEST_F(YardJobs, RanksThatHadToBeKilledAreInTheHistory) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(CancelJob{job, "user:anna", ""}).ok());
  Failure killed;
  killed.reason = "CANCELLED";
  killed.message = "rank 0 did not answer, and was killed when its grace was over";
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kStopped, killed)}).ok());
  EXPECT_EQ(State(job), "CANCELLED");
  const auto told = std::find_if(events_.begin(), events_.end(), [](const EventRecord& event) {
    return event.type == "RANKS_KILLED";
  });
  ASSERT_NE(told, events_.end());
  EXPECT_EQ(told->message, killed.message);
  EXPECT_EQ(told->resource, "jobs/1/attempts/1");
}

TEST_F(YardJobs, InALongQueueNewJobsWaitForEachOther) {
  config_.long_queue = 3;
  yard_ = std::make_unique<Yard>(config_, Snapshot{}, now_);
  Join("lab-1", 1);
  for (int i = 0; i < 3; ++i) Submit(9);
  Advance(config_.pass_interval_us);
  Submit(9);
  const JobId small = Submit(1);
  EXPECT_EQ(State(small), "QUEUED");
  EXPECT_EQ(yard_->NextDeadline(), now_.uptime_us + config_.pass_interval_us);
  Advance(config_.pass_interval_us - 1);
  EXPECT_EQ(State(small), "QUEUED");
  Advance(1);
  EXPECT_EQ(State(small), "STARTING") << "the pool can never hold those ahead";
}

TEST_F(YardJobs, NothingElseWaitsInALongQueue) {
  config_.long_queue = 1;
  yard_ = std::make_unique<Yard>(config_, Snapshot{}, now_);
  const JobId job = Submit(1);
  Submit(1);
  Join("lab-1", 1);
  EXPECT_EQ(State(job), "STARTING");
  Advance(config_.pass_interval_us);
  Join("lab-2", 2);
  const JobId late = Submit(1);
  EXPECT_EQ(State(late), "STARTING") << "the queue is short again";
}

TEST_F(YardJobs, LostMetricsAreToldInTheHistoryOnly) {
  const JobId job = Submit(1);
  const std::string before = State(job);
  ASSERT_TRUE(Apply(NoteLostMetrics{job, "5 points"}).ok());
  EXPECT_EQ(State(job), before);
  EXPECT_EQ(events_.back().type, "METRICS_LOST");
  EXPECT_EQ(events_.back().resource, JobName(job));
  EXPECT_EQ(events_.back().message, "5 points");
  EXPECT_EQ(ErrorReason(Apply(NoteLostMetrics{JobId{9}, "5 points"})), "NOT_FOUND");
}

}  // namespace
}  // namespace trainyard::core
