// Tests that subscribers hear of their own jobs and topics, and of no others.
#include "server/runtime/notifier.h"

#include <gtest/gtest.h>

#include <vector>

namespace trainyard::runtime {
namespace {

TEST(Notifier, CallsThoseOfTheJobAndTheTopic) {
  Notifier notifier;
  std::vector<std::string> calls;
  const auto record = [&calls](const char* who) {
    return [&calls, who](JobId job) { calls.push_back(who + std::to_string(job.value)); };
  };
  const auto all = notifier.Subscribe(std::nullopt, kJobChanged, record("all "));
  const auto one = notifier.Subscribe(JobId{1}, kJobChanged | kLogGrew, record("one "));
  const auto two = notifier.Subscribe(JobId{2}, kMetricsGrew, record("two "));
  notifier.Notify(JobId{1}, kJobChanged);
  notifier.Notify(JobId{1}, kLogGrew);
  notifier.Notify(JobId{1}, kMetricsGrew);
  notifier.Notify(JobId{2}, kMetricsGrew);
  EXPECT_EQ(calls, (std::vector<std::string>{"all 1", "one 1", "one 1", "two 2"}));
}

TEST(Notifier, ForgetsSubscriptionsThatEnd) {
  Notifier notifier;
  int calls = 0;
  auto first = notifier.Subscribe(JobId{1}, kJobChanged, [&calls](JobId) { ++calls; });
  const auto second = notifier.Subscribe(JobId{1}, kJobChanged, [&calls](JobId) { ++calls; });
  first.reset();
  notifier.Notify(JobId{1}, kJobChanged);
  EXPECT_EQ(calls, 1);
}

TEST(Notifier, ACallbackMayEndItsOwnSubscription) {
  Notifier notifier;
  std::unique_ptr<Notifier::Subscription> subscription;
  subscription =
      notifier.Subscribe(JobId{1}, kJobChanged, [&subscription](JobId) { subscription.reset(); });
  notifier.Notify(JobId{1}, kJobChanged);
  notifier.Notify(JobId{1}, kJobChanged);
  EXPECT_EQ(subscription, nullptr);
}

}  // namespace
}  // namespace trainyard::runtime
