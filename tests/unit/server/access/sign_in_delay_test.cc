#include "server/access/sign_in_delay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::access {
namespace {

constexpr absl::Duration kStart = absl::Seconds(1000);

// Fails until a failure is followed by a delay, and returns that delay.
absl::Duration NextDelay(SignInDelay& delay, absl::Duration& now) {
  while (true) {
    const absl::Duration wait = delay.Failed("a", now);
    if (wait > absl::ZeroDuration()) return wait;
  }
}

TEST(SignInDelay, TheFirstFailuresAreFree) {
  SignInDelay delay;
  for (int i = 0; i < SignInDelay::kFreeFailures; ++i) {
    EXPECT_EQ(delay.Failed("a", kStart), absl::ZeroDuration());
  }
  EXPECT_EQ(delay.Failed("a", kStart), absl::ZeroDuration()) << "this one begins the delay";
  EXPECT_EQ(delay.Failed("a", kStart), SignInDelay::kFirstDelay);
  EXPECT_EQ(delay.Failed("b", kStart), absl::ZeroDuration()) << "others are not slowed down";
}

TEST(SignInDelay, TheDelayDoublesUpToItsLimit) {
  SignInDelay delay;
  absl::Duration now = kStart;
  absl::Duration expected = SignInDelay::kFirstDelay;
  for (int i = 0; i < 12; ++i) {
    const absl::Duration wait = NextDelay(delay, now);
    EXPECT_EQ(wait, expected);
    now += wait;
    expected = std::min(2 * expected, SignInDelay::kDelayMax);
  }
}

TEST(SignInDelay, TriesDuringTheDelayDoNotLengthenIt) {
  SignInDelay delay;
  absl::Duration now = kStart;
  NextDelay(delay, now);
  for (int i = 0; i < 1000; ++i) delay.Failed("a", now);
  EXPECT_EQ(delay.Failed("a", now + absl::Milliseconds(400)), absl::Milliseconds(600));
}

TEST(SignInDelay, AnAddressIsForgottenInTime) {
  SignInDelay delay;
  absl::Duration now = kStart;
  NextDelay(delay, now);
  now += SignInDelay::kForgetAfter;
  for (int i = 0; i <= SignInDelay::kFreeFailures; ++i) {
    EXPECT_EQ(delay.Failed("a", now), absl::ZeroDuration());
  }
}

TEST(SignInDelay, TheMemoryIsBounded) {
  SignInDelay delay;
  for (size_t i = 0; i < SignInDelay::kAddressesMax + 100; ++i) {
    delay.Failed(absl::StrCat("address ", i), kStart);
  }
  EXPECT_EQ(delay.size(), SignInDelay::kAddressesMax);
}

}  // namespace
}  // namespace trainyard::access
