// Tests how the pool is shared: quotas, use, reservations, arrays, dependencies, and workers and
// devices that are set aside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "tests/unit/server/core/yard/yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class YardShare : public YardTest {
 protected:
  YardShare() {
    config_.min_runtime_us = 0;
    yard_ = std::make_unique<Yard>(config_, Snapshot{}, now_);
  }

  absl::Status TrySubmit(const Submission& spec) {
    return Apply(SubmitJob{std::make_shared<Submission>(spec), "", "", "user:anna"});
  }
  void Limit(QuotaRecord quota) { TY_CHECK_OK(Apply(SetQuota{std::move(quota), "user:op"})); }
};

TEST_F(YardShare, TheQuotaOnQueuedJobsCountsWhatWaits) {
  QuotaRecord quota;
  quota.subject = "user:anna";
  quota.queued_jobs = 2;
  Limit(quota);
  const JobId first = Submit(1);
  Submit(1);
  const absl::Status refused = TrySubmit(Spec(1));
  EXPECT_EQ(ErrorReason(refused), "QUOTA_EXCEEDED");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'user:anna' would have 3 queued jobs"));
  Submission other = Spec(1);
  other.user = "berta";
  EXPECT_TRUE(TrySubmit(other).ok());
  ASSERT_TRUE(Apply(CancelJob{first, "user:anna", ""}).ok());
  EXPECT_TRUE(TrySubmit(Spec(1)).ok());
  Restart();
  EXPECT_FALSE(TrySubmit(Spec(1)).ok()) << "counted anew from the records";
  ASSERT_TRUE(Apply(DeleteQuota{"user:anna", "user:op"}).ok());
  EXPECT_TRUE(TrySubmit(Spec(1)).ok());
}

TEST_F(YardShare, AnArrayCountsWhole) {
  QuotaRecord quota;
  quota.subject = "user:*";
  quota.queued_jobs = 5;
  Limit(quota);
  Submission array = Spec(1);
  array.array_size = 6;
  EXPECT_EQ(ErrorReason(TrySubmit(array)), "QUOTA_EXCEEDED");
  array.array_size = 5;
  EXPECT_TRUE(TrySubmit(array).ok());
}

TEST_F(YardShare, TheRateOfSubmissionsRefillsWithTime) {
  QuotaRecord quota;
  quota.subject = "project:vision";
  quota.submits_per_minute = 2;
  Limit(quota);
  Submission spec = Spec(1);
  spec.project = "vision";
  EXPECT_TRUE(TrySubmit(spec).ok());
  EXPECT_TRUE(TrySubmit(spec).ok());
  EXPECT_EQ(ErrorReason(TrySubmit(spec)), "QUOTA_EXCEEDED");
  EXPECT_TRUE(TrySubmit(Spec(1)).ok()) << "another project";
  Advance(30 * kSecond);
  EXPECT_TRUE(TrySubmit(spec).ok());
  EXPECT_FALSE(TrySubmit(spec).ok());
}

TEST_F(YardShare, AJobThatNeverFitsItsQuotaIsRefused) {
  QuotaRecord quota;
  quota.subject = "user:anna";
  quota.devices = 2;
  Limit(quota);
  EXPECT_EQ(ErrorReason(TrySubmit(Spec(3))), "QUOTA_EXCEEDED");
  EXPECT_TRUE(TrySubmit(Spec(2)).ok());
}

TEST_F(YardShare, TheQuotaOnStoredBytesCountsCheckpoints) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  ASSERT_TRUE(Apply(CommitCheckpoint{
                        sessions_["lab-1"], {job, 1}, 1, 10, {{"model.safetensors", 5000, "h"}}})
                  .ok());
  QuotaRecord quota;
  quota.subject = "user:anna";
  quota.stored_bytes = 4000;
  Limit(quota);
  EXPECT_EQ(ErrorReason(TrySubmit(Spec(1))), "QUOTA_EXCEEDED");
  quota.stored_bytes = 6000;
  Limit(quota);
  EXPECT_TRUE(TrySubmit(Spec(1)).ok());
}

TEST_F(YardShare, UseIsChargedByDeviceAndTimeAndHalvesInAHalfLife) {
  Join("lab-1", 2);
  const JobId job = Submit(2);
  Run("lab-1", job);
  Advance(50 * kSecond);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(Job(job).device_time_us, 100 * kSecond);
  EXPECT_EQ(yard_->Usage(now_).at({"", "anna"}).device_us, 100 * kSecond);
  Restart();
  EXPECT_EQ(yard_->Usage(now_).at({"", "anna"}).device_us, 100 * kSecond);
  Advance(config_.usage_half_life_us);
  const int64_t left = yard_->Usage(now_).at({"", "anna"}).device_us;
  EXPECT_NEAR(static_cast<double>(left), 50e6, 1e6);
  now_.wall_us += 1000 * (24 * kHour);
  Advance(kMinute);
  EXPECT_EQ(yard_->Usage(now_).at({"", "anna"}).device_us, left)
      << "no jump of the wall clock changes a share";
}

TEST_F(YardShare, AQuarantinedDeviceIsLeftOutUntilItIsReleased) {
  Join("lab-1", 1);
  ASSERT_TRUE(Apply(QuarantineDevice{"lab-1", "cpu-0", "user:op", "makes noises"}).ok());
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_THAT(yard_->QueueReasons(job), Contains(HasSubstr("makes noises")));
  Join("lab-1", 1);  // a new session changes nothing
  EXPECT_EQ(State(job), "QUEUED");
  ASSERT_TRUE(Apply(ReleaseDevice{"lab-1", "cpu-0", "user:op"}).ok());
  EXPECT_EQ(State(job), "STARTING");
  EXPECT_EQ(Apply(QuarantineDevice{"lab-1", "cpu-7", "user:op", ""}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Apply(ReleaseDevice{"lab-7", "cpu-0", "user:op"}).code(), absl::StatusCode::kNotFound);
}

TEST_F(YardShare, AHardwareFailureSetsTheDeviceAside) {
  Join("lab-1", 2);
  const JobId job = Submit(1);
  const Failure xid{FailureClass::kHardware, "XID_79", "GPU has fallen off the bus"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, xid)}).ok());
  EXPECT_THAT(yard_->FindWorker("lab-1")->devices[0].quarantine,
              HasSubstr("GPU has fallen off the bus (jobs/1/attempts/1)"));
  EXPECT_TRUE(HasEvent("DEVICE_QUARANTINED"));
  EXPECT_EQ(yard_->FindWorker("lab-1")->scheduling, Scheduling::kEligible)
      << "the device is set aside, not its worker";
}

TEST_F(YardShare, DifferentJobsThatFailInARowDrainTheWorker) {
  Join("lab-1", 1);
  const Failure crash{FailureClass::kTransient, "CRASH", "signal 11"};
  for (int i = 0; i < 2; ++i) {
    const JobId job = Submit(1);
    ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, crash)}).ok());
    ASSERT_TRUE(Apply(CancelJob{job, "user:anna", ""}).ok());
  }
  EXPECT_THAT(yard_->FindWorker("lab-1")->failed_jobs, SizeIs(2));
  Restart();
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  const JobId third = Submit(1);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(third, OutcomeKind::kFailed, crash)}).ok());
  EXPECT_EQ(yard_->FindWorker("lab-1")->scheduling, Scheduling::kDraining);
  Advance(kMinute);
  EXPECT_EQ(State(third), "QUEUED");
}

TEST_F(YardShare, AWorkerIsNotBlamedForAPeerThatWasLostElsewhere) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  const Failure lost{FailureClass::kTransient, "PEER_LOST", "rank 1 was lost"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, lost)}).ok());
  EXPECT_TRUE(yard_->FindWorker("lab-1")->failed_jobs.empty());
}

TEST_F(YardShare, AWorkerIsNotBlamedForARankThatIsStuckElsewhere) {
  Join("lab-1", 1);
  Join("lab-2", 1);
  const JobId job = Submit(2);
  const auto& ranks = yard_->FindAttempt({job, 1})->ranks;
  ASSERT_THAT(ranks, SizeIs(2));
  ASSERT_NE(ranks[0].worker, ranks[1].worker);
  const Failure stuck{FailureClass::kTransient, "RANK_STUCK", "rank 1 is stuck"};
  ObservedAttempt seen = SeeExit(job, OutcomeKind::kFailed, stuck);
  seen.outcome.failed_rank = 1;
  const std::string teller = ranks[0].worker;
  ASSERT_TRUE(Sync(teller, {seen}).ok());
  EXPECT_TRUE(yard_->FindWorker(teller)->failed_jobs.empty());
}

TEST_F(YardShare, AStuckRankCountsAgainstTheWorkerThatHasIt) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  const Failure stuck{FailureClass::kTransient, "RANK_STUCK", "rank 0 is stuck"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(job, OutcomeKind::kFailed, stuck)}).ok());
  EXPECT_THAT(yard_->FindWorker("lab-1")->failed_jobs, SizeIs(1));
}

TEST_F(YardShare, ASuccessClearsWhatAWorkerIsBlamedFor) {
  Join("lab-1", 1);
  const Failure crash{FailureClass::kTransient, "CRASH", "signal 11"};
  const JobId bad = Submit(1);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(bad, OutcomeKind::kFailed, crash)}).ok());
  ASSERT_TRUE(Apply(CancelJob{bad, "user:anna", ""}).ok());
  const JobId good = Submit(1);
  ASSERT_TRUE(Sync("lab-1", {SeeExit(good, OutcomeKind::kSucceeded)}).ok());
  EXPECT_TRUE(yard_->FindWorker("lab-1")->failed_jobs.empty());
}

TEST_F(YardShare, TheJobsOfAnArrayShareOneSubmissionAndFollowInNumber) {
  Submission array = Spec(1);
  array.array_size = 3;
  const JobId first = Submit(array);
  for (int i = 0; i < 3; ++i) {
    const JobId id{first.value + i};
    EXPECT_EQ(Job(id).array, first);
    EXPECT_EQ(Job(id).array_index(), i);
    EXPECT_EQ(Job(id).submission, Job(first).submission);
    EXPECT_EQ(State(id), "QUEUED");
  }
  EXPECT_EQ(yard_->FindJob(JobId{first.value + 3}), nullptr);
}

TEST_F(YardShare, AnArrayRunsNoMoreAtATimeThanItsLimit) {
  Join("lab-1", 4);
  Submission array = Spec(1);
  array.array_size = 3;
  array.array_parallel = 1;
  const JobId first = Submit(array);
  const JobId second{first.value + 1};
  EXPECT_EQ(State(first), "STARTING");
  EXPECT_EQ(State(second), "QUEUED");
  EXPECT_EQ(State(Submit(1)), "STARTING") << "it holds up nobody";
  ASSERT_TRUE(Sync("lab-1", {SeeExit(first, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(second), "STARTING");
}

TEST_F(YardShare, AJobWaitsForTheEndOrTheSuccessOfAnother) {
  Join("lab-1", 3);
  const JobId first = Submit(1);
  Submission after = Spec(1), after_ok = Spec(1);
  after.dependencies = {{first, false}};
  after_ok.dependencies = {{first, true}};
  const JobId either = Submit(after), success = Submit(after_ok);
  EXPECT_EQ(State(either), "QUEUED");
  EXPECT_THAT(yard_->QueueReasons(either),
              ElementsAre("waits for job jobs/1 to end; it is starting"));
  EXPECT_THAT(yard_->QueueReasons(success),
              ElementsAre("waits for job jobs/1 to succeed; it is starting"));
  const Failure bad{FailureClass::kUserError, "", "bad label"};
  ASSERT_TRUE(Sync("lab-1", {SeeExit(first, OutcomeKind::kFailed, bad)}).ok());
  EXPECT_EQ(State(either), "STARTING");
  EXPECT_EQ(State(success), "QUEUED");
  EXPECT_THAT(yard_->QueueReasons(success), Contains(HasSubstr("never will")));
  EXPECT_THAT(*yard_->Admit(after_ok, now_), Contains(HasSubstr("never will")))
      << "whoever submits another one is warned";
  EXPECT_THAT(*yard_->Admit(after, now_), IsEmpty());
  Restart();
  EXPECT_EQ(State(success), "QUEUED");
  Submission lost = Spec(1);
  lost.dependencies = {{JobId{99}, false}};
  EXPECT_EQ(TrySubmit(lost).code(), absl::StatusCode::kNotFound);
}

TEST_F(YardShare, ADelayedJobStartsAtItsTime) {
  Join("lab-1", 1);
  Submission spec = Spec(1);
  spec.not_before_us = now_.wall_us + 20 * kSecond;
  const JobId job = Submit(spec);
  EXPECT_EQ(State(job), "QUEUED");
  EXPECT_THAT(yard_->QueueReasons(job), Contains(HasSubstr("is not to start before ")));
  Advance(10 * kSecond);
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  EXPECT_EQ(State(job), "QUEUED");
  Advance(10 * kSecond);
  EXPECT_EQ(State(job), "STARTING");
}

TEST_F(YardShare, TheExpectedStartOfAHeldJobIsExplained) {
  Join("lab-1", 1);
  Submission limited = Spec(1);
  limited.time_limit_us = kHour;
  const JobId first = Submit(limited);
  Submission spec = Spec(1);
  spec.dependencies = {{first, true}};
  const JobId after = Submit(spec);
  for (const Explanation& it : {yard_->Preview(spec, now_), yard_->Explain(after, now_)}) {
    EXPECT_EQ(it.start_in_us, kHour);
    EXPECT_EQ(it.start_basis, "after jobs/1, if it succeeds when it is expected to");
  }
  spec.dependencies.clear();
  spec.not_before_us = now_.wall_us + 3 * kHour;
  const JobId later = Submit(spec);
  for (const Explanation& it : {yard_->Preview(spec, now_), yard_->Explain(later, now_)}) {
    EXPECT_EQ(it.start_in_us, 3 * kHour);
    EXPECT_THAT(it.start_basis, HasSubstr("not before "));
  }
}

TEST_F(YardShare, ADelayedStartFollowsAClockThatIsSetRight) {
  Submission spec = Spec(1);
  spec.not_before_us = now_.wall_us + kMinute;
  now_.wall_us -= 24 * kHour;  // somebody changes the clock, and changes it back later
  const JobId job = Submit(spec);
  Advance(2 * kMinute);
  EXPECT_EQ(State(job), "QUEUED");
  now_.wall_us += 24 * kHour;
  Advance(config_.wall_recheck_us);
  Join("lab-1", 1);
  EXPECT_EQ(State(job), "STARTING");
}

class Reservations : public YardShare {
 protected:
  CreateReservation Make(const std::string& name, int64_t in_us, int64_t for_us, int32_t count) {
    CreateReservation in;
    in.reservation.name = name;
    in.reservation.start_us = now_.wall_us + in_us;
    in.reservation.end_us = in.reservation.start_us + for_us;
    in.reservation.subjects = {"user:berta"};
    in.reservation.actor = "user:op";
    in.count = count;
    return in;
  }
};

TEST_F(Reservations, DevicesBelongToTheirSubjectsWhileTheyAreReserved) {
  Join("lab-1", 1);
  const JobId stranger = Submit(1);
  Run("lab-1", stranger);
  ASSERT_TRUE(Apply(Make("course", 10 * kSecond, 60 * kSecond, 1)).ok());
  EXPECT_EQ(yard_->DesiredFor("lab-1")[0].checkpoint_request, 0);
  Advance(10 * kSecond);
  EXPECT_EQ(yard_->DesiredFor("lab-1")[0].checkpoint_request, 1);
  ASSERT_TRUE(Apply(CommitCheckpoint{sessions_["lab-1"], {stranger, 1}, 1, 40, {}}).ok());
  EXPECT_EQ(Desired("lab-1"), "jobs/1/attempts/1 STOP PREEMPT");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(stranger, OutcomeKind::kStopped)}).ok());
  EXPECT_EQ(State(stranger), "QUEUED");
  Submission spec = Spec(1);
  spec.user = "berta";
  const JobId entitled = Submit(spec);
  EXPECT_EQ(State(entitled), "STARTING");
  ASSERT_TRUE(Sync("lab-1", {SeeExit(entitled, OutcomeKind::kSucceeded)}).ok());
  EXPECT_EQ(State(stranger), "QUEUED");
  for (int i = 0; i < 6; ++i) {
    Advance(10 * kSecond);
    ASSERT_TRUE(Sync("lab-1", {}).ok());
  }
  EXPECT_EQ(State(stranger), "STARTING");
  EXPECT_TRUE(yard_->snapshot().reservations.empty());
  EXPECT_TRUE(HasEvent("RESERVATION_ENDED"));
}

TEST_F(Reservations, AreRefusedWhereTheyCannotBeKept) {
  Join("lab-1", 2);
  ASSERT_TRUE(Apply(Make("course", 0, kHour, 1)).ok());
  EXPECT_EQ(ErrorReason(Apply(Make("course", 0, kHour, 1))), "RESERVATION_EXISTS");
  EXPECT_EQ(Apply(Make("two", 0, kHour, 2)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Apply(Make("later", kHour, kHour, 2)).ok());
  EXPECT_EQ(Apply(Make("past", -2 * kHour, kHour, 1)).code(), absl::StatusCode::kInvalidArgument);
  CreateReservation unknown = Make("unknown", 0, kHour, 0);
  unknown.reservation.devices = {{"lab-1", "cpu-9"}};
  EXPECT_EQ(Apply(unknown).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Apply(DeleteReservation{"course", "user:op"}).ok());
  EXPECT_EQ(Apply(DeleteReservation{"course", "user:op"}).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trainyard::core
