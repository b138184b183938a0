// Tests that tasks run in order, and that a full queue refuses more.
#include "server/runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>

#include "common/base/errors.h"
#include "tests/unit/server/runtime/flag.h"

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
  testing::Flag started, release;
  ASSERT_TRUE(executor
                  .TryPost([&] {
                    started.Raise();
                    release.Await();
                  })
                  .ok());
  started.Await();
  ASSERT_TRUE(executor.TryPost([] {}).ok());
  ASSERT_TRUE(executor.TryPost([] {}).ok());
  const absl::Status refused = executor.TryPost([] {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(refused), "SERVER_BUSY");
  EXPECT_EQ(GetRetryDelay(refused), absl::Seconds(1));
  release.Raise();
}

}  // namespace
}  // namespace trainyard::runtime
