// Tests that a sync that failed is never trusted. After a failure, Linux counts the pages as
// written, so the next sync of the same file succeeds although the bytes may not be on the disk.
//
// The program has its own fsync and fdatasync, which the linker takes instead of those of the C
// library.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/files.h"
#include "server/runtime/log_store.h"
#include "tests/testing/temp_dir.h"

namespace {

// The sync with this number fails, counted down to 0; negative if none does.
int fails_in = -1;

int Sync(long call, int fd) {
  if (fails_in >= 0 && fails_in-- == 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(call, fd));
}

}  // namespace

extern "C" int fsync(int fd) {
  return Sync(SYS_fsync, fd);
}
extern "C" int fdatasync(int fd) {
  return Sync(SYS_fdatasync, fd);
}

namespace trainyard::runtime {
namespace {

TEST(FailingSync, OfALogDropsWhatWasNotAcknowledged) {
  testing::TempDir dir;
  LogStore logs(dir.File("logs"));
  const LogId log = {{JobId{12}, 1}, 3};
  ASSERT_EQ(*logs.Append(log, 0, "hello "), 6);
  fails_in = 0;
  EXPECT_FALSE(logs.Append(log, 6, "world").ok());
  EXPECT_EQ(*logs.Size(log), 6) << "the bytes must be sent, written and synced again";
  EXPECT_EQ(*logs.Append(log, 6, "world"), 11);
  EXPECT_EQ(*logs.Read(log, 0, 100), "hello world");
}

// The first append syncs the file and three folders that name it.
TEST(FailingSync, OfTheFirstBytesOrTheirFoldersBeginsAnew) {
  for (int call = 0; call < 4; ++call) {
    testing::TempDir dir;
    LogStore logs(dir.File("logs"));
    const LogId log = {{JobId{12}, 1}, 3};
    // The folders are there already, so that only the syncs of the log count.
    ASSERT_TRUE(logs.Append({log.attempt, 7}, 0, "x").ok());
    fails_in = call;
    EXPECT_FALSE(logs.Append(log, 0, "hello").ok()) << call;
    EXPECT_EQ(fails_in, -1);
    EXPECT_EQ(*logs.Size(log), 0) << call;
    EXPECT_EQ(*logs.Append(log, 0, "hello"), 5) << call;
  }
}

}  // namespace
}  // namespace trainyard::runtime
