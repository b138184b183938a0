#include "common/base/file_watch.h"

#include "common/base/check.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FileWatchTest : public ::testing::Test {
 protected:
  FileWatchTest() : watch_(FileWatch::Create()) { TY_CHECK_OK(watch_.status()); }

  int AddFolder(const std::string& name) {
    TY_CHECK_OK(MakeDirectories(dir_.File(name)));
    const auto number = watch_->Add(dir_.File(name));
    TY_CHECK_OK(number.status());
    return *number;
  }

  testing::TempDir dir_;
  absl::StatusOr<FileWatch> watch_;
};

TEST_F(FileWatchTest, TellsInWhichFoldersSomethingChanged) {
  const int a = AddFolder("a");
  const int b = AddFolder("b");
  AddFolder("c");
  EXPECT_THAT(watch_->Take().folders, IsEmpty());
  ASSERT_TRUE(ReplaceFile(dir_.File("a/file"), "text").ok());
  ASSERT_TRUE(ReplaceFile(dir_.File("b/file"), "text").ok());
  const FileChanges changes = watch_->Take();
  EXPECT_THAT(changes.folders, ElementsAre(a, b));
  EXPECT_FALSE(changes.any_lost);
  EXPECT_THAT(watch_->Take().folders, IsEmpty());
  ASSERT_TRUE(RemoveTree(dir_.File("b/file")).ok());
  EXPECT_THAT(watch_->Take().folders, ElementsAre(b));
}

TEST_F(FileWatchTest, AFolderKeepsItsNumber) {
  const int a = AddFolder("a");
  EXPECT_EQ(AddFolder("a"), a);
}

TEST_F(FileWatchTest, SaysWhenChangesWereLost) {
  const int a = AddFolder("a");
  const auto limit = ReadFile("/proc/sys/fs/inotify/max_queued_events", 64);
  ASSERT_TRUE(limit.ok());
  const int events = std::stoi(*limit);
  if (events > 200'000) GTEST_SKIP() << "this system keeps " << events << " events";
  // Each action makes several events. No event equals the one before it, because equal ones would
  // be joined.
  for (int i = 0; i <= events / 3; ++i) {
    ASSERT_TRUE(ReplaceFile(dir_.File(i % 2 == 0 ? "a/x" : "a/y"), "").ok());
  }
  const FileChanges changes = watch_->Take();
  EXPECT_TRUE(changes.any_lost);
  EXPECT_THAT(changes.folders, ::testing::Contains(a));
}

TEST_F(FileWatchTest, WhatIsNoFolderIsRefused) {
  EXPECT_FALSE(watch_->Add(dir_.File("nothing")).ok());
}

}  // namespace
}  // namespace trainyard
