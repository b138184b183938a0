// Tests that folders are moved away at once and deleted later.
#include "worker/agent/sweeper.h"

#include "common/base/files.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::agent {
namespace {

class SweeperTest : public ::testing::Test {
 protected:
  std::string MakeFolder(const std::string& name) {
    std::string path = dir_.File(name);
    EXPECT_TRUE(MakeDirectories(JoinPath(path, "inner")).ok());
    EXPECT_TRUE(WriteFileAtomically(JoinPath(path, "inner/file"), "text").ok());
    return path;
  }

  testing::TempDir dir_;
  const std::string bin_ = dir_.File("removed");
};

TEST_F(SweeperTest, MovesAtOnceAndRemovesLater) {
  const std::string folder = MakeFolder("a");
  Sweeper sweeper(bin_, absl::Milliseconds(300), *Clock::Real());
  const absl::Duration begin = Clock::Real()->Uptime();
  ASSERT_TRUE(sweeper.Remove(folder, "1").ok());
  EXPECT_FALSE(FileExists(folder));
  EXPECT_TRUE(
      testing::WaitUntil([&] { return !FileExists(JoinPath(bin_, "1")); }, absl::Seconds(20)));
  EXPECT_GE(Clock::Real()->Uptime() - begin, absl::Milliseconds(300));
}

TEST_F(SweeperTest, RemovesWhatAnEarlierLifeLeft) {
  MakeFolder("removed/1");
  const Sweeper sweeper(bin_, absl::Hours(1), *Clock::Real());
  EXPECT_TRUE(
      testing::WaitUntil([&] { return !FileExists(JoinPath(bin_, "1")); }, absl::Seconds(20)));
}

TEST_F(SweeperTest, EndsWithoutWaitingForWhatIsDueLater) {
  const std::string folder = MakeFolder("a");
  {
    Sweeper sweeper(bin_, absl::Hours(1), *Clock::Real());
    ASSERT_TRUE(sweeper.Remove(folder, "1").ok());
  }
  EXPECT_TRUE(FileExists(JoinPath(bin_, "1/inner/file")));
}

TEST_F(SweeperTest, WhatIsMovedAwayGoesBeforeWhatIsDueLater) {
  const std::string first = MakeFolder("a");
  const std::string second = MakeFolder("b");
  Sweeper sweeper(bin_, absl::Hours(1), *Clock::Real());
  ASSERT_TRUE(sweeper.Remove(first, "1").ok());
  ASSERT_TRUE(sweeper.MoveAway(second, "2").ok());
  EXPECT_FALSE(FileExists(second));
  EXPECT_TRUE(
      testing::WaitUntil([&] { return !FileExists(JoinPath(bin_, "2")); }, absl::Seconds(20)));
  EXPECT_TRUE(FileExists(JoinPath(bin_, "1")));
  const std::string third = MakeFolder("c");
  EXPECT_FALSE(sweeper.MoveAway(third, "1").ok()) << "the name is taken";
  EXPECT_TRUE(FileExists(third));
  EXPECT_TRUE(sweeper.MoveAway(dir_.File("nothing"), "3").ok());
}

TEST_F(SweeperTest, AFolderThatIsNotThereIsFine) {
  Sweeper sweeper(bin_, absl::ZeroDuration(), *Clock::Real());
  EXPECT_TRUE(sweeper.Remove(dir_.File("nothing"), "1").ok());
  EXPECT_FALSE(FileExists(bin_));
}

TEST_F(SweeperTest, ANameThatIsTakenIsRemovedWhereItIs) {
  const std::string first = MakeFolder("a");
  const std::string second = MakeFolder("b");
  Sweeper sweeper(bin_, absl::Hours(1), *Clock::Real());
  ASSERT_TRUE(sweeper.Remove(first, "1").ok());
  ASSERT_TRUE(sweeper.Remove(second, "1").ok());
  EXPECT_FALSE(FileExists(second));
}

}  // namespace
}  // namespace trainyard::agent
