// Tests what quotas count, and how use is charged and decays.
#include "server/core/yard/accounts.h"

#include <gtest/gtest.h>

namespace trainyard::core {
namespace {

Now At(int64_t us) {
  return {.wall_us = 1'790'000'000 * kSecond, .uptime_us = us};
}

Submission By(const std::string& user, const std::string& project = "", int32_t devices = 1) {
  Submission submission;
  submission.user = user;
  submission.project = project;
  submission.demand.count = devices;
  return submission;
}

class AccountsTest : public ::testing::Test {
 protected:
  QuotaRecord& Quota(const std::string& subject) {
    QuotaRecord& quota = quotas_[subject];
    quota.subject = subject;
    return quota;
  }
  absl::Status Submit(const Submission& submission, int64_t at_us = 0) {
    const absl::Status status = accounts_.CheckSubmission(quotas_, submission, At(at_us));
    if (status.ok()) accounts_.ChargeSubmission(quotas_, submission, At(at_us));
    return status;
  }

  // One running attempt of two devices.
  void StartAttempt() {
    JobRecord job;
    job.submission = std::make_shared<Submission>(By("anna", "vision", 2));
    job.attempt = 1;
    const JobId id = ledger_.AddJob(std::move(job));
    AttemptRecord attempt;
    attempt.id = {id, 1};
    attempt.ranks = {{0, "lab-1", "cpu-0"}, {1, "lab-2", "cpu-0"}};
    attempt.parts = {{"lab-1", PartState::kRunning, {}}, {"lab-2", PartState::kRunning, {}}};
    live_.Add(attempt);
    ledger_.AddAttempt(std::move(attempt));
  }
  int64_t Stored() const { return ledger_.snapshot().usage.at({"vision", "anna"}).device_us; }

  Config config_;
  std::map<std::string, QuotaRecord> quotas_;
  Accounts accounts_{config_, 0, At(0)};
  Ledger ledger_{Snapshot{}};
  LiveAttempts live_;
};

TEST_F(AccountsTest, QueuedJobsAreCountedByUserAndByProject) {
  Quota("project:vision").queued_jobs = 2;
  accounts_.CountQueued(By("anna", "vision"), 1);
  EXPECT_TRUE(Submit(By("anna", "vision")).ok());
  accounts_.CountQueued(By("berta", "vision"), 1);
  EXPECT_FALSE(Submit(By("anna", "vision")).ok());
  EXPECT_TRUE(Submit(By("anna")).ok()) << "without a project under no project's quota";
  accounts_.CountQueued(By("berta", "vision"), -1);
  EXPECT_TRUE(Submit(By("anna", "vision")).ok());
}

TEST_F(AccountsTest, AQuotaForAllOthersCountsEachByItself) {
  Quota("user:*").stored_bytes = 100;
  accounts_.CountStored(By("anna"), 100);
  EXPECT_FALSE(Submit(By("anna")).ok());
  EXPECT_TRUE(Submit(By("berta")).ok());
  accounts_.CountStored(By("anna"), -1);
  EXPECT_TRUE(Submit(By("anna")).ok());
}

TEST_F(AccountsTest, TheBudgetOfSubmissionsFillsWithTime) {
  Quota("user:anna").submits_per_minute = 2;
  EXPECT_TRUE(Submit(By("anna")).ok());
  EXPECT_TRUE(Submit(By("anna")).ok());
  EXPECT_FALSE(Submit(By("anna")).ok());
  EXPECT_FALSE(Submit(By("anna"), 29 * kSecond).ok());
  EXPECT_TRUE(Submit(By("anna"), 30 * kSecond).ok());
}

TEST_F(AccountsTest, ARefusalTakesNothingFromAnyBudget) {
  Quota("user:anna").submits_per_minute = 1;
  Quota("project:vision").devices = 1;
  EXPECT_FALSE(Submit(By("anna", "vision", 2)).ok());
  EXPECT_TRUE(Submit(By("anna")).ok());
}

TEST_F(AccountsTest, DevicesAreChargedWhileTheirPartsHoldThem) {
  StartAttempt();
  const AttemptId id{JobId{1}, 1};
  Accounts::Charge(ledger_, id, live_.at(id), At(10 * kSecond));
  EXPECT_EQ(Stored(), 20 * kSecond);
  EXPECT_EQ(ledger_.job(JobId{1}).device_time_us, 20 * kSecond);
  ledger_.EditAttempt(id).parts[1].state = PartState::kExited;
  Accounts::Charge(ledger_, id, live_.at(id), At(15 * kSecond));
  EXPECT_EQ(Stored(), 25 * kSecond);
}

TEST_F(AccountsTest, WhatIsNotChargedYetIsShown) {
  StartAttempt();
  const auto usage = Accounts::Usage(ledger_, live_, At(7 * kSecond));
  EXPECT_EQ(usage.at({"vision", "anna"}).device_us, 14 * kSecond);
  EXPECT_TRUE(ledger_.snapshot().usage.empty());
}

TEST_F(AccountsTest, UseIsHalvedByAHalfLifeOfPoolTime) {
  ledger_.EditUsage()[{"vision", "anna"}] = {"vision", "anna", 1'000'000 * kSecond};
  accounts_.Keep(ledger_, live_, At(30 * kSecond));
  EXPECT_EQ(ledger_.snapshot().pool_time_us, 0) << "not so often";
  accounts_.Keep(ledger_, live_, At(config_.usage_half_life_us));
  EXPECT_EQ(ledger_.snapshot().pool_time_us, config_.usage_half_life_us);
  EXPECT_NEAR(static_cast<double>(Stored()), 500'000.0 * kSecond, 100.0 * kSecond);
}

}  // namespace
}  // namespace trainyard::core
