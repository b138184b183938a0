// Tests workers whose reports arrive, but which do not hear the answers.
#include "tests/unit/server/core/yard/yard_fixture.h"

namespace trainyard::core {
namespace {

class DeafWorker : public YardTest {
 protected:
  // Takes a report of a worker that counts the answers that it has heard.
  absl::Status Report(const std::string& worker, std::vector<ObservedAttempt> attempts,
                      int64_t answers_heard) {
    SyncReport report;
    report.session = sessions_[worker];
    report.sequence = ++sequences_[worker];
    report.desired_revision = answers_heard == 0 ? 0 : yard_->DesiredRevision(worker);
    report.attempts = std::move(attempts);
    report.answers_heard = answers_heard;
    return Apply(report);
  }
  // Takes a report of a worker that does not count, and has taken these orders last.
  absl::Status OldReport(const std::string& worker, int64_t revision) {
    SyncReport report;
    report.session = sessions_[worker];
    report.sequence = ++sequences_[worker];
    report.desired_revision = revision;
    return Apply(report);
  }
};

TEST_F(DeafWorker, IsUnreachableALeaseAfterTheLastAnswerThatItHeard) {
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Report("lab-1", {}, 0).ok());
  for (int64_t heard = 1; heard <= 5; ++heard) {
    Advance(5 * kSecond);
    ASSERT_TRUE(Report("lab-1", {}, heard).ok());
    EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  }
  for (int i = 0; i < 2; ++i) {
    Advance(5 * kSecond);
    ASSERT_TRUE(Report("lab-1", {}, 5).ok());
    EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  }
  Advance(5 * kSecond);
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  EXPECT_EQ(events_.back().message, "its reports come, but for 15 s it has not heard the answers");
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED") << "it could not be told";
}

TEST_F(DeafWorker, ComesBackOnlyByAReportThatShowsThatItHears) {
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Report("lab-1", {}, 0).ok());
  const JobId job = Submit(1);
  ASSERT_TRUE(Report("lab-1", {See(job, ObservedState::kRunning)}, 1).ok());
  Advance(5 * kSecond);
  ASSERT_TRUE(Report("lab-1", {See(job, ObservedState::kRunning)}, 1).ok());
  Advance(10 * kSecond);
  ASSERT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(Report("lab-1", {See(job, ObservedState::kRunning)}, 1).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  // The worker either hears the refusal and registers, or it hears the answer to an old report.
  ASSERT_TRUE(Report("lab-1", {See(job, ObservedState::kRunning)}, 2).ok());
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  Advance(config_.lease_us);
  ASSERT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Report("lab-1", {See(job, ObservedState::kRunning)}, 0).ok());
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  EXPECT_EQ(State(job), "RUNNING");
  EXPECT_EQ(Job(job).attempt, 1);
}

TEST_F(DeafWorker, HasOneLeaseHoweverOftenItRegisters) {
  ASSERT_TRUE(Register("lab-1", 1).ok());
  for (int i = 0; i < 2; ++i) {
    Advance(5 * kSecond);
    ASSERT_TRUE(Register("lab-1", 1).ok());
    EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  }
  Advance(5 * kSecond);
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  ASSERT_TRUE(Register("lab-1", 1).ok());
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  ASSERT_TRUE(Report("lab-1", {}, 0).ok());
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE") << "it has heard of its session";
}

TEST_F(DeafWorker, HasNoLeaseOfItsOwnFromAServerThatHasStartedAnew) {
  Join("lab-1", 1);
  Restart();
  Advance(config_.lease_us);
  ASSERT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  ASSERT_TRUE(Register("lab-1", 1).ok()) << "the first time that this server hears of it";
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
  ASSERT_TRUE(Report("lab-1", {}, 0).ok());
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
}

TEST_F(DeafWorker, CannotPutOffTheLossOfItsAttemptsByRegistering) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  Run("lab-1", job);
  const int64_t lost = now_.uptime_us + config_.lease_us + Job(job).submission->disconnect_keep_us +
                       config_.lease_grace_us + config_.lost_margin_us;
  Advance(config_.lease_us);
  while (now_.uptime_us + 10 * kSecond < lost) {
    Advance(10 * kSecond);
    ASSERT_TRUE(Register("lab-1", 1).ok());
    ASSERT_EQ(State(job), "RUNNING");
  }
  Advance(lost - now_.uptime_us);
  EXPECT_EQ(AttemptState(job, 1), "LOST");
}

TEST_F(DeafWorker, StaysGoneHoweverOftenItRegisters) {
  ASSERT_TRUE(Register("lab-1", 1).ok());
  Advance(config_.lease_us);
  ASSERT_TRUE(Register("lab-1", 1).ok());
  Advance(config_.gone_after_us);
  ASSERT_EQ(WorkerState("lab-1"), "GONE");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Register("lab-1", 1).ok());
    EXPECT_EQ(WorkerState("lab-1"), "GONE");
    Advance(5 * kSecond);
  }
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "QUEUED") << "it could not be told";
  ASSERT_TRUE(Report("lab-1", {}, 0).ok());
  EXPECT_EQ(WorkerState("lab-1"), "ACTIVE") << "it has heard of its session";
  EXPECT_EQ(State(job), "STARTING");
}

TEST_F(DeafWorker, IsLostOnlyOnceAnAnswerToItsLastReportHasNoEffectAnyMore) {
  Join("lab-2", 1);
  ASSERT_TRUE(Register("lab-1", 1).ok());
  ASSERT_TRUE(Report("lab-1", {}, 0).ok());
  Submission spec = Spec(1);
  spec.disconnect_keep_us = 0;
  const JobId job = Submit(spec);
  ASSERT_EQ(Desired("lab-1"), "jobs/1/attempts/1 RUN");
  ASSERT_TRUE(Report("lab-1", {See(job, ObservedState::kRunning)}, 1).ok());
  Advance(10 * kSecond);
  ASSERT_TRUE(Sync("lab-2", {}).ok());
  ASSERT_TRUE(Report("lab-1", {See(job, ObservedState::kRunning)}, 1).ok());
  const int64_t lost =
      now_.uptime_us + config_.lease_us + config_.lease_grace_us + config_.lost_margin_us;
  while (now_.uptime_us < lost) {
    EXPECT_EQ(State(job), "RUNNING");
    Advance(5 * kSecond);
    (void)Report("lab-1", {See(job, ObservedState::kRunning)}, 1);
    ASSERT_TRUE(Sync("lab-2", {}).ok());
  }
  EXPECT_EQ(AttemptState(job, 1), "LOST");
  EXPECT_EQ(Desired("lab-2"), "jobs/1/attempts/2 RUN");
}

TEST_F(DeafWorker, ThatDoesNotCountIsFoundByTheOrdersThatItDoesNotTake) {
  Join("lab-1", 1);
  const int64_t revision = yard_->DesiredRevision("lab-1");
  for (int i = 0; i < 5; ++i) {
    Advance(5 * kSecond);
    ASSERT_TRUE(OldReport("lab-1", revision).ok());
    ASSERT_EQ(WorkerState("lab-1"), "ACTIVE") << "there is nothing that it should have heard";
  }
  const JobId job = Submit(1);
  EXPECT_EQ(State(job), "STARTING");
  for (int i = 0; i < 2; ++i) {
    Advance(5 * kSecond);
    ASSERT_TRUE(OldReport("lab-1", revision).ok());
    EXPECT_EQ(WorkerState("lab-1"), "ACTIVE");
  }
  Advance(5 * kSecond);
  EXPECT_EQ(WorkerState("lab-1"), "UNREACHABLE");
}

}  // namespace
}  // namespace trainyard::core
