// Tests the verdict on each class of failure, and the backoff.
#include "server/core/lifecycle/retry_policy.h"

#include <gtest/gtest.h>

namespace trainyard::core {
namespace {

const Config kConfig;

FailureHistory History(int32_t retries, int32_t max_retries, int32_t failures = 0) {
  FailureHistory history;
  history.retries = retries;
  history.max_retries = max_retries;
  history.failures = failures;
  return history;
}

TEST(RetryPolicy, AUserErrorIsNeverRetried) {
  const RetryVerdict verdict =
      JudgeFailure(kConfig, {FailureClass::kUserError, "BAD_LABEL", "label 11"}, History(0, 3));
  EXPECT_TRUE(verdict.give_up);
  EXPECT_EQ(verdict.failure.message, "label 11");
}

TEST(RetryPolicy, ATransientFailureBacksOffUpToMaxRetries) {
  const Failure failure{FailureClass::kTransient, "PEER_LOST", "peer lost"};
  const RetryVerdict first = JudgeFailure(kConfig, failure, History(0, 2));
  EXPECT_FALSE(first.give_up);
  EXPECT_TRUE(first.counts_as_retry);
  EXPECT_EQ(first.delay_us, 5 * kSecond);
  EXPECT_EQ(JudgeFailure(kConfig, failure, History(1, 2)).delay_us, 10 * kSecond);
  const RetryVerdict last = JudgeFailure(kConfig, failure, History(2, 2));
  EXPECT_TRUE(last.give_up);
  EXPECT_EQ(last.failure.message, "peer lost (after 2 of 2 retries)");
}

TEST(RetryPolicy, TheBackoffIsBounded) {
  EXPECT_EQ(BackoffDelay(kConfig, 0), 5 * kSecond);
  EXPECT_EQ(BackoffDelay(kConfig, 3), 40 * kSecond);
  EXPECT_EQ(BackoffDelay(kConfig, 1'000'000), 5 * kMinute);
}

TEST(RetryPolicy, HardwareAndLossCostNoRetryAndWaitOnlyWhenRepeated) {
  for (const FailureClass kind : {FailureClass::kHardware, FailureClass::kLost}) {
    const RetryVerdict first = JudgeFailure(kConfig, {kind, "", "gone"}, History(0, 0, 0));
    EXPECT_FALSE(first.give_up);
    EXPECT_FALSE(first.counts_as_retry);
    EXPECT_EQ(first.delay_us, 0);
    EXPECT_EQ(JudgeFailure(kConfig, {kind, "", "gone"}, History(0, 0, 1)).delay_us, 5 * kSecond);
  }
}

TEST(RetryPolicy, TheSameFailureOfRankZeroOnTwoWorkersIsPoison) {
  const Failure failure{FailureClass::kTransient, "SIGSEGV", "rank 0 died"};
  FailureHistory history = History(1, 3, 1);
  history.rank_zero = {{"lab-1", failure}, {"lab-2", failure}};
  const RetryVerdict verdict = JudgeFailure(kConfig, failure, history);
  EXPECT_TRUE(verdict.hold);
  EXPECT_FALSE(verdict.give_up);
  EXPECT_EQ(verdict.failure.failure_class, FailureClass::kPoison);
  EXPECT_NE(verdict.failure.message.find("worker lab-1 and on worker lab-2"), std::string::npos);
}

TEST(RetryPolicy, TheSameWorkerTwiceOrAnotherFailureIsNoPoison) {
  const Failure failure{FailureClass::kTransient, "SIGSEGV", "rank 0 died"};
  FailureHistory history = History(1, 3, 1);
  history.rank_zero = {{"lab-1", failure}, {"lab-1", failure}};
  EXPECT_FALSE(JudgeFailure(kConfig, failure, history).give_up);
  history.rank_zero = {{"lab-2", {FailureClass::kTransient, "DISK_FULL", ""}}, {"lab-1", failure}};
  EXPECT_FALSE(JudgeFailure(kConfig, failure, history).give_up);
}

}  // namespace
}  // namespace trainyard::core
