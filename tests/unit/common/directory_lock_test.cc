// Tests the lock on a state directory, between objects and between processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kNobody = 65'534;

TEST(DirectoryLock, KeepsASecondHolderOutAndNamesTheFirst) {
  const testing::TempDir folder;
  const auto first = DirectoryLock::Acquire(folder.path());
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = DirectoryLock::Acquire(folder.path()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(second), "STATE_LOCKED");
  EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("process ", getpid())));
}

TEST(DirectoryLock, IsFreeAgainWhenTheObjectIsGone) {
  const testing::TempDir folder;
  { ASSERT_TRUE(DirectoryLock::Acquire(folder.path()).ok()); }
  EXPECT_TRUE(DirectoryLock::Acquire(folder.path()).ok());
}

TEST(DirectoryLock, MovesWithItsObject) {
  const testing::TempDir folder;
  std::optional<DirectoryLock> lock;
  {
    auto acquired = DirectoryLock::Acquire(folder.path());
    ASSERT_TRUE(acquired.ok());
    lock = *std::move(acquired);
  }
  EXPECT_FALSE(DirectoryLock::Acquire(folder.path()).ok());
  lock.reset();
  EXPECT_TRUE(DirectoryLock::Acquire(folder.path()).ok());
}

TEST(DirectoryLock, HasOneHolderAlsoWhereHoldersRemoveTheDirectory) {
  const testing::TempDir parent;
  const std::string folder = parent.File("folder");
  std::atomic<int> holders = 0;
  std::atomic<int> holders_max = 0;
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int held = 0; held < 100;) {
        MakeDirectories(folder).IgnoreError();
        const auto lock = DirectoryLock::Acquire(folder);
        if (!lock.ok()) {
          std::this_thread::yield();
          continue;
        }
        ++held;
        const int now = ++holders;
        if (now > holders_max) holders_max = now;
        std::this_thread::yield();
        --holders;
        unlink(JoinPath(folder, "lock").c_str());
        rmdir(folder.c_str());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(holders_max, 1);
}

TEST(DirectoryLock, DiesWithAProcessThatIsKilled) {
  const testing::TempDir folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = DirectoryLock::Acquire(folder.path());
    const char answer = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_THAT(std::string(DirectoryLock::Acquire(folder.path()).status().message()),
              HasSubstr(absl::StrCat("process ", child)));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(DirectoryLock::Acquire(folder.path()).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST(DirectoryLock, RefusesADirectoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  const testing::TempDir folder;
  ASSERT_EQ(chown(folder.path().c_str(), kNobody, kNobody), 0);
  const absl::Status status = DirectoryLock::Acquire(folder.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrorReason(status), "STATE_NOT_OWNED");
  EXPECT_FALSE(FileExists(folder.File("lock")));
}

TEST(DirectoryLock, NeedsTheDirectory) {
  const testing::TempDir folder;
  EXPECT_EQ(DirectoryLock::Acquire(folder.File("none")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trainyard
