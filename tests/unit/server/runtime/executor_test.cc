#include "server/runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "common/base/errors.h"

namespace trainyard::runtime {
namespace {

TEST(Executor, RunsWhatIsQueuedBeforeItEnds) {
  std::atomic<int> runs = 0;
  {
    Executor executor(2);
    for (int i = 0; i < 100; ++i) executor.Post([&runs] { ++runs; });
  }
  EXPECT_EQ(runs, 100);
}

TEST(Executor, AFullQueueRefusesWithADelay) {
  Executor executor(1, 2);
  absl::Notification started, release;
  ASSERT_TRUE(executor
                  .TryPost([&] {
                    started.Notify();
                    release.WaitForNotification();
                  })
                  .ok());
  started.WaitForNotification();
  ASSERT_TRUE(executor.TryPost([] {}).ok());
  ASSERT_TRUE(executor.TryPost([] {}).ok());
  const absl::Status refused = executor.TryPost([] {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(refused), "SERVER_BUSY");
  EXPECT_EQ(GetRetryDelay(refused), absl::Seconds(1));
  release.Notify();
}

}  // namespace
}  // namespace trainyard::runtime
