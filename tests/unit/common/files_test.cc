// Tests that files are written completely or not at all, and that errors name the path.
#include "common/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "common/base/errors.h"
#include "common/base/full_disk.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FilesTest : public ::testing::Test {
 protected:
  const testing::TempDir folder_;
};

TEST_F(FilesTest, WritesAndReadsBack) {
  const std::string path = folder_.File("a");
  std::string content("zero \0 and \xff", 12);
  content += std::string(1 << 20, 'x');  // more than a block of the reader
  for (const auto write : {WriteFileAtomically, ReplaceFile}) {
    ASSERT_TRUE(write(path, content, 0644).ok());
    EXPECT_EQ(*ReadFile(path), content);
    ASSERT_TRUE(write(path, "", 0600).ok());
    EXPECT_EQ(*ReadFile(path), "");
    EXPECT_THAT(*ListDirectory(folder_.path()), ElementsAre("a"));
  }
}

TEST_F(FilesTest, AFileIsMadeWithItsMode) {
  ASSERT_TRUE(WriteFileAtomically(folder_.File("secret"), "x", 0600).ok());
  struct stat info {};
  ASSERT_EQ(stat(folder_.File("secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(FilesTest, AFailedWriteLeavesTheOldContentAndNoTemporaryFile) {
  // The name is taken by a folder with content, so the rename fails.
  ASSERT_TRUE(MakeDirectories(folder_.File("a/b")).ok());
  const absl::Status status = WriteFileAtomically(folder_.File("a"), "x");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.File("a")));
  EXPECT_THAT(*ListDirectory(folder_.path()), ElementsAre("a"));
}

TEST_F(FilesTest, ReadFileKeepsToItsLimit) {
  const std::string path = folder_.Write("a", "12345");
  EXPECT_EQ(*ReadFile(path, 5), "12345");
  const absl::Status status = ReadFile(path, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit of 4 bytes"));
}

TEST_F(FilesTest, ReadsFilesWithoutASize) {
  EXPECT_THAT(*ReadFile("/proc/self/stat"), HasSubstr(std::to_string(getpid())));
}

TEST_F(FilesTest, ReadsRanges) {
  const std::string path = folder_.Write("a", "0123456789");
  EXPECT_EQ(*ReadFileRange(path, 0, 4), "0123");
  EXPECT_EQ(*ReadFileRange(path, 8, 4), "89");
  EXPECT_EQ(*ReadFileRange(path, 10, 4), "");
  EXPECT_EQ(*ReadFileRange(path, 100, 4), "");
  EXPECT_EQ(*ReadFileRange(path, 3, 0), "");
}

TEST_F(FilesTest, WhatIsNotThereIsNotFound) {
  const std::string path = folder_.File("none");
  for (const absl::Status& status : {ReadFile(path).status(), FileSize(path).status(),
                                     ListDirectory(path).status(), SyncDirectory(path)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_FALSE(FileExists(path));
  EXPECT_TRUE(RemoveTree(path).ok());
}

TEST_F(FilesTest, ReadingAFolderFails) {
  EXPECT_EQ(ReadFile(folder_.path()).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(FilesTest, MakesAndRemovesTrees) {
  const std::string deep = folder_.File("a/b/c");
  ASSERT_TRUE(MakeDirectories(deep).ok());
  ASSERT_TRUE(MakeDirectories(deep).ok());
  ASSERT_TRUE(MakeDirectories(deep + "/").ok());
  folder_.Write("a/b/c/file", "x");
  folder_.Write("a/z", "12");
  EXPECT_EQ(*FileSize(folder_.File("a/z")), 2);
  EXPECT_THAT(*ListDirectory(folder_.File("a")), ElementsAre("b", "z"));
  ASSERT_TRUE(RemoveTree(folder_.File("a")).ok());
  EXPECT_THAT(*ListDirectory(folder_.path()), IsEmpty());
}

TEST_F(FilesTest, ATreeIsListedWhileFoldersOfItVanish) {
  ASSERT_TRUE(MakeDirectories(folder_.File("tree/a")).ok());
  ASSERT_TRUE(WriteFileAtomically(folder_.File("tree/a/kept"), "").ok());
  ASSERT_EQ(symlink("a", folder_.File("tree/link").c_str()), 0);
  const std::vector<std::string> expected = {"a/kept", "link"};
  std::atomic<bool> is_done = false;
  std::thread remover([&] {
    const std::string folder = folder_.File("tree/b");
    while (!is_done) {
      mkdir(folder.c_str(), 0700);
      rmdir(folder.c_str());
    }
  });
  for (int i = 0; i < 5'000; ++i) {
    const auto names = ListTree(folder_.File("tree"), 10);
    if (names.ok() && *names == expected) continue;
    ADD_FAILURE() << names.status();
    break;
  }
  is_done = true;
  remover.join();
  EXPECT_EQ(ListTree(folder_.File("none"), 10).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ListTree(folder_.File("tree"), 1).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(FilesTest, DeepTreesAreRemovedWithFewDescriptors) {
  constexpr int kLevels = 5000;  // such a path is far longer than the kernel takes
  folder_.Write("kept", "kept");
  const std::string top = folder_.File("deep");
  ASSERT_EQ(mkdir(top.c_str(), 0700), 0);
  UniqueFd folder = *OpenFile(top, O_RDONLY | O_DIRECTORY);
  for (int level = 0; level < kLevels; ++level) {
    ASSERT_EQ(mkdirat(folder.get(), "moved-1", 0700), 0);  // as the removal itself names folders
    ASSERT_EQ(symlinkat(folder_.File("kept").c_str(), folder.get(), "link"), 0);
    folder = UniqueFd(openat(folder.get(), "moved-1", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(folder.valid());
  }
  folder = UniqueFd();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{80, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status removed = RemoveTree(top);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(removed.ok()) << removed;
  EXPECT_FALSE(FileExists(top));
  EXPECT_EQ(*ReadFile(folder_.File("kept")), "kept");
}

TEST_F(FilesTest, AFileInTheWayOfAFolderIsAnError) {
  folder_.Write("a", "x");
  EXPECT_FALSE(MakeDirectories(folder_.File("a")).ok());
  EXPECT_FALSE(MakeDirectories(folder_.File("a/b")).ok());
}

TEST_F(FilesTest, AFullDiskHasItsName) {
  const auto fd = OpenFile("/dev/full", O_WRONLY);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const absl::Status status = WriteFully(fd->get(), "x", "/dev/full");
  EXPECT_EQ(ErrorReason(status), "DISK_FULL") << status;
}

TEST_F(FilesTest, AReservedFileIsReplacedOnAFullDisk) {
  const testing::TempDir small;
  const auto mounted = testing::SmallDisk::Mount(small.path(), "size=1m");
  if (absl::IsUnavailable(mounted.status())) GTEST_SKIP() << mounted.status().message();
  ASSERT_TRUE(mounted.ok()) << mounted.status();
  const auto& disk = *mounted;
  const std::string path = disk->File("a");
  ASSERT_TRUE(ReserveSpace(path, 8192).ok());
  ASSERT_TRUE(ReplaceFile(disk->File("b"), "b").ok());
  disk->FillSpace();
  EXPECT_EQ(ErrorReason(ReplaceFile(disk->File("b"), "c")), "DISK_FULL");
  EXPECT_EQ(ReadFile(disk->File("b")).value(), "b");
  EXPECT_TRUE(WriteFileAtomically(path, std::string(5000, 'x')).ok());
  EXPECT_EQ(ReadFile(path)->size(), 5000u);
  EXPECT_EQ(ErrorReason(ReplaceFile(path, "y")), "DISK_FULL") << "the space is used up";
  disk->Free();
  ASSERT_TRUE(ReserveSpace(path, 8192).ok());
  disk->FillSpace();
  for (const char* content : {"one", "three", "two", ""}) {
    EXPECT_TRUE(ReplaceFile(path, content).ok());
    EXPECT_EQ(ReadFile(path).value(), content);
  }
  disk->Free();
  EXPECT_TRUE(ReplaceFile(path, "free again").ok());
  EXPECT_EQ(ReadFile(path).value(), "free again");
}

TEST_F(FilesTest, DescriptorsAreClosedOnceAndOnExec) {
  auto opened = OpenFile(folder_.Write("a", "x"), O_RDONLY);
  ASSERT_TRUE(opened.ok());
  UniqueFd first = *std::move(opened);
  const int number = first.get();
  EXPECT_NE(fcntl(number, F_GETFD) & FD_CLOEXEC, 0);
  UniqueFd second = std::move(first);
  EXPECT_EQ(second.get(), number);
  EXPECT_NE(fcntl(number, F_GETFD), -1);
  second = UniqueFd();
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
  EXPECT_FALSE(second.valid());
}

TEST_F(FilesTest, ErrnoBecomesTheCodeThatFits) {
  EXPECT_EQ(ErrnoStatus(ENOENT, "cannot open", "/f").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(EEXIST, "cannot open", "/f").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ErrnoStatus(EROFS, "cannot open", "/f").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoStatus(EMFILE, "cannot open", "/f").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EIO, "cannot open", "/f").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(ErrnoStatus(EDQUOT, "cannot write", "/f")), "DISK_FULL");
  EXPECT_THAT(std::string(ErrnoStatus(EIO, "cannot read", "/f").message()),
              HasSubstr("cannot read '/f': "));
}

TEST(JoinPath, PutsOneSlashBetween) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
}

}  // namespace
}  // namespace trainyard
