// Tests how files are opened where somebody else may have put something else.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/processes.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

TEST(RegularFile, IsReadWholeAndInParts) {
  const testing::TempDir folder;
  const std::string path = folder.Write("file", "0123456789");
  EXPECT_EQ(ReadRegularFile(path).value(), "0123456789");
  EXPECT_EQ(ReadRegularFileRange(path, 4, 3).value(), "456");
  EXPECT_EQ(ReadRegularFile(path, 9).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::IsNotFound(ReadRegularFile(folder.File("none")).status()));
}

TEST(RegularFile, IsNoLinkNoFifoNoDeviceAndNoFolder) {
  const testing::TempDir folder;
  const std::string path = folder.Write("file", "secret");
  ASSERT_EQ(symlink(path.c_str(), folder.File("link").c_str()), 0);
  ASSERT_EQ(mkfifo(folder.File("fifo").c_str(), 0600), 0);
  for (const std::string& trap :
       {folder.File("link"), folder.File("fifo"), folder.path(), std::string("/dev/null")}) {
    const absl::Status read = ReadRegularFile(trap).status();
    EXPECT_EQ(ErrorReason(read), "NOT_A_REGULAR_FILE") << trap << ": " << read;
    const absl::Status written = OpenRegularFile(trap, O_WRONLY).status();
    EXPECT_FALSE(written.ok()) << trap;
    EXPECT_FALSE(RegularFileHash(trap, 100).ok()) << trap;
  }
}

TEST(RegularFile, IsNotReachedThroughAProcess) {
  const testing::TempDir folder;
  folder.Write("file", "secret");
  const auto open_folder = OpenFile(folder.path(), O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(open_folder.ok());
  const std::string path = absl::StrCat("/proc/self/fd/", open_folder->get(), "/file");
  EXPECT_EQ(ReadFile(path).value(), "secret");
  EXPECT_EQ(ErrorReason(ReadRegularFile(path).status()), "NOT_A_REGULAR_FILE");
}

TEST(RegularFile, IsHashedNoFurtherThanItShouldBeLong) {
  const testing::TempDir folder;
  const std::string path = folder.Write("file", "0123456789");
  EXPECT_EQ(RegularFileHash(path, 10).value(), ContentHash("0123456789"));
  const std::string large = folder.Write("large", std::string(size_t{3} << 20, 'x'));
  EXPECT_NE(RegularFileHash(large, 10).value(), FileHash(large).value());
}

TEST(ReplaceFile, DoesNotOpenWhatStandsUnderItsTemporaryName) {
  const testing::TempDir folder;
  const std::string path = folder.File("lease");
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  const std::string victim = folder.Write("victim", "untouched");
  ASSERT_EQ(symlink(victim.c_str(), temporary.c_str()), 0);
  ASSERT_TRUE(ReplaceFile(path, "1").ok());
  // A FIFO that nobody reads would hold up the writer for ever.
  ASSERT_EQ(mkfifo(temporary.c_str(), 0600), 0);
  ASSERT_TRUE(ReplaceFile(path, "2").ok());
  EXPECT_EQ(ReadFile(path).value(), "2");
  EXPECT_EQ(ReadFile(victim).value(), "untouched");
  EXPECT_FALSE(FileExists(temporary));
}

TEST(ReplaceFile, ReplacesALinkAndNotWhatItNames) {
  const testing::TempDir folder;
  const std::string victim = folder.Write("victim", "untouched");
  ASSERT_EQ(symlink(victim.c_str(), folder.File("exit.json").c_str()), 0);
  ASSERT_TRUE(ReplaceFile(folder.File("exit.json"), "{}").ok());
  EXPECT_EQ(ReadFile(victim).value(), "untouched");
  EXPECT_EQ(ReadRegularFile(folder.File("exit.json")).value(), "{}");
}

// Somebody exchanges a folder of the tree for a link to a folder outside, again and again.
TEST(RemoveTree, RemovesNothingOutsideWhateverIsExchangedMeanwhile) {
  const testing::TempDir folder;
  const std::string outside = folder.File("outside");
  ASSERT_TRUE(MakeDirectories(outside).ok());
  folder.Write("outside/precious", "x");
  const std::string tree = folder.File("tree");
  const std::string inner = JoinPath(tree, "inner");
  const std::string link = folder.File("link");
  const std::string spare = folder.File("spare");
  ASSERT_EQ(symlink(outside.c_str(), link.c_str()), 0);
  std::atomic<bool> stop = false;
  std::thread hostile([&] {
    while (!stop) {
      (void)renameat2(AT_FDCWD, inner.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE);
      (void)rename(inner.c_str(), spare.c_str());
      (void)symlink(outside.c_str(), inner.c_str());
    }
  });
  for (int round = 0; round < 300; ++round) {
    (void)MakeDirectories(inner);
    for (const char* name : {"a", "b", "precious"}) {
      (void)OpenFile(JoinPath(inner, name), O_WRONLY | O_CREAT).status();
    }
    (void)RemoveTree(tree);
    ASSERT_TRUE(FileExists(outside)) << "round " << round;
    ASSERT_TRUE(FileExists(JoinPath(outside, "precious"))) << "round " << round;
  }
  stop = true;
  hostile.join();
}

TEST(PrivateDirectory, IsNotWritableByOthers) {
  const testing::TempDir folder;
  EXPECT_TRUE(CheckPrivateDirectory(folder.path()).ok());
  for (const mode_t mode : {0755U, 0711U, 0700U}) {
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    EXPECT_TRUE(CheckPrivateDirectory(folder.path()).ok());
  }
  for (const mode_t mode : {0770U, 0720U, 0702U, 01777U}) {
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    const absl::Status refused = CheckPrivateDirectory(folder.path());
    EXPECT_EQ(ErrorReason(refused), "STATE_NOT_PRIVATE") << mode;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("chmod go-w"));
    EXPECT_EQ(ErrorReason(DirectoryLock::Acquire(folder.path()).status()), "STATE_NOT_PRIVATE");
  }
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
}

TEST(Process, BelongsToItsUserOnly) {
  EXPECT_TRUE(IsProcessOf(getpid(), geteuid()));
  EXPECT_FALSE(IsProcessOf(getpid(), geteuid() + 1));
  EXPECT_FALSE(IsProcessOf(int64_t{1} << 40, geteuid()));
}

}  // namespace
}  // namespace trainyard
