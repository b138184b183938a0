#include "server/relay/client_calls.h"

#include <gtest/gtest.h>

namespace trainyard::relay {
namespace {

constexpr absl::Duration kToday = absl::Hours(1);

TEST(ClientCalls, SoManyMayBeUnderWayAndNoMore) {
  ClientCalls calls(3);
  EXPECT_TRUE(calls.Begin(kToday));
  EXPECT_TRUE(calls.Begin(kToday));
  EXPECT_TRUE(calls.Begin(kToday));
  EXPECT_FALSE(calls.Begin(kToday));
  calls.End();
  calls.End();
  EXPECT_TRUE(calls.Begin(kToday)) << "calls that were answered make room";
  EXPECT_FALSE(calls.IsIdle(kToday));
  calls.End();
  calls.End();
  calls.End();
  EXPECT_TRUE(calls.IsIdle(kToday));
}

TEST(ClientCalls, CallsThatAreTakenBackCountForAWhile) {
  ClientCalls calls(100);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(calls.Begin(kToday));
  calls.TakeBack(100, kToday);
  EXPECT_FALSE(calls.IsIdle(kToday));
  EXPECT_FALSE(calls.Begin(kToday));
  calls.End();
  const absl::Duration step = absl::Seconds(50 / ClientCalls::kForgottenPerSecond);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(calls.Begin(kToday + step));
  EXPECT_FALSE(calls.Begin(kToday + step));
  for (int i = 0; i < 51; ++i) calls.End();
  EXPECT_TRUE(calls.IsIdle(kToday + 2 * step));
}

}  // namespace
}  // namespace trainyard::relay
