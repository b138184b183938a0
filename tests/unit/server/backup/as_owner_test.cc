// Tests that root works as the owner of a folder, and comes back. It needs root, and skips without.
#include "server/backup/as_owner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::backup {
namespace {

constexpr uid_t kNobody = 65'534;

class AsOwnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    ASSERT_EQ(chown(dir_.path().c_str(), kNobody, kNobody), 0);
  }
  testing::TempDir dir_;
};

TEST_F(AsOwnerTest, WhatIsMadeBelongsToTheOwner) {
  {
    const auto owner = AsOwner::Become(dir_.path());
    ASSERT_TRUE(owner.ok()) << owner.status();
    EXPECT_EQ(geteuid(), kNobody);
    ASSERT_TRUE(WriteFileAtomically(dir_.File("made"), "x").ok());
  }
  EXPECT_EQ(geteuid(), uid_t{0});
  EXPECT_EQ(getegid(), getgid());
  struct stat info {};
  ASSERT_EQ(stat(dir_.File("made").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kNobody);
  EXPECT_EQ(info.st_gid, kNobody);
}

TEST_F(AsOwnerTest, AFolderThatIsNotThereChangesNobody) {
  const auto owner = AsOwner::Become(dir_.File("none"));
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ(geteuid(), uid_t{0});
}

// In a container that has one user, root cannot become anybody else.
TEST_F(AsOwnerTest, AnOwnerWhomTheContainerDoesNotKnowIsAnError) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr int kNoNamespaces = 3;
    if (unshare(CLONE_NEWUSER) != 0) _exit(kNoNamespaces);
    for (const auto& [path, text] :
         {std::pair{"/proc/self/uid_map", "0 0 1"}, std::pair{"/proc/self/setgroups", "deny"},
          std::pair{"/proc/self/gid_map", "0 0 1"}}) {
      const auto file = OpenFile(path, O_WRONLY);
      if (!file.ok() || !WriteFully(file->get(), text, path).ok()) _exit(kNoNamespaces);
    }
    const auto owner = AsOwner::Become(dir_.path());
    _exit(!owner.ok() && geteuid() == 0 && getegid() == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "this host has no user namespaces";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace trainyard::backup
