// Tests the protocol of files with which control groups are made, limited, killed and removed.
#include "worker/cgroup/group.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "tests/unit/worker/cgroup/fake_tree.h"
#include "worker/cgroup/limits.h"

namespace trainyard::cgroup {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GroupTest : public ::testing::Test {
 protected:
  GroupTest()
      : tree_(folder_.File("tree"), {"cpu", "cpuset", "memory", "pids"}),
        root_(folder_.File("tree"), tree_.calls()) {}

  static std::string Text(const Group& group, const std::string& file) {
    return group.Read(file).value_or("none");
  }

  testing::TempDir folder_;
  testing::FakeTree tree_;
  Group root_;
};

TEST_F(GroupTest, IsMadeAndRemovedWithThoseBelow) {
  const Group group = root_.Child("a");
  EXPECT_FALSE(group.Exists());
  ASSERT_TRUE(group.Make().ok());
  ASSERT_TRUE(group.Make().ok()) << "it may exist already";
  ASSERT_TRUE(group.Child("b").Make().ok());
  EXPECT_THAT(group.Children(), ElementsAre("b"));
  EXPECT_TRUE(group.Remove().ok());
  EXPECT_FALSE(group.Exists());
  EXPECT_TRUE(group.Remove().ok()) << "it may be gone already";
}

TEST_F(GroupTest, StaysWhileAProcessIsInIt) {
  const Group group = root_.Child("a");
  ASSERT_TRUE(group.Make().ok());
  ASSERT_TRUE(group.Write("cgroup.events", "populated 1\nfrozen 0\n").ok());
  EXPECT_TRUE(group.IsPopulated());
  EXPECT_TRUE(absl::IsUnavailable(group.Remove())) << group.Remove();
  EXPECT_FALSE(group.WaitUntilEmpty(absl::Milliseconds(1)));
}

TEST_F(GroupTest, KillsByOneFile) {
  const Group group = root_.Child("a");
  ASSERT_TRUE(group.Make().ok());
  ASSERT_TRUE(group.Kill().ok());
  EXPECT_EQ(Text(group, "cgroup.kill"), "1");
}

TEST_F(GroupTest, KillsOneByOneWhereTheKernelHasNoSuchFile) {
  const Group group = root_.Child("a");
  ASSERT_TRUE(group.Make().ok());
  ASSERT_TRUE(group.Child("b").Make().ok());
  for (const Group& one : {group, group.Child("b")}) {
    ASSERT_EQ(unlink(JoinPath(one.path(), "cgroup.kill").c_str()), 0);
  }
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_TRUE(group.Child("b").Take(child).ok());
  EXPECT_THAT(group.Child("b").Processes(), ElementsAre(child));
  ASSERT_TRUE(group.Kill().ok());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(GroupTest, LimitsStandInTheFilesOfTheKernel) {
  const Group group = root_.Child("a");
  ASSERT_TRUE(group.Make().ok());
  ASSERT_TRUE(SetLimits(group, {.memory_bytes = int64_t{1} << 30,
                                .processes = 64,
                                .cpus = {0, 1, 5},
                                .ends_together = true})
                  .ok());
  EXPECT_EQ(Text(group, "memory.max"), "1073741824");
  EXPECT_EQ(Text(group, "memory.swap.max"), "0");
  EXPECT_EQ(Text(group, "memory.oom.group"), "1");
  EXPECT_EQ(Text(group, "pids.max"), "64");
  EXPECT_EQ(Text(group, "cpuset.cpus"), "0,1,5");
}

TEST_F(GroupTest, WithoutSetsOfProcessorsTheirTimeIsBounded) {
  const Group group = root_.Child("a");
  ASSERT_TRUE(group.Make().ok());
  ASSERT_EQ(unlink(JoinPath(group.path(), "cpuset.cpus").c_str()), 0);
  ASSERT_TRUE(SetLimits(group, {.cpus = {2, 3}}).ok());
  EXPECT_EQ(Text(group, "cpu.max"), "200000 100000");
  EXPECT_EQ(Text(group, "memory.max"), "max") << "what is not limited stays as it was";
}

TEST_F(GroupTest, ALimitOfMemoryNeedsItsController) {
  const Group group = root_.Child("a");
  ASSERT_TRUE(group.Make().ok());
  ASSERT_EQ(unlink(JoinPath(group.path(), "memory.max").c_str()), 0);
  const absl::Status limited = SetLimits(group, {.memory_bytes = 1 << 20});
  EXPECT_THAT(std::string(limited.message()), HasSubstr("memory.max"));
}

TEST_F(GroupTest, MemoryThatRanOutIsToldWithPeakAndLimit) {
  const Group group = root_.Child("a");
  ASSERT_TRUE(group.Make().ok());
  EXPECT_EQ(ReadMemoryUse(group).value(), MemoryUse{});
  ASSERT_TRUE(group.Write("memory.events", "oom 1\noom_kill 2\noom_group_kill 1\n").ok());
  ASSERT_TRUE(group.Write("memory.max", "1073741824\n").ok());
  ASSERT_TRUE(group.Write("memory.peak", "1073700864\n").ok());
  const MemoryUse use = ReadMemoryUse(group).value();
  EXPECT_EQ(use, (MemoryUse{2, 1073700864, 1073741824}));
  EXPECT_EQ(OutOfMemoryText(use), "used 1.0 GiB of 1.0 GiB; ask for more with resources.memory");
  EXPECT_EQ(OutOfMemoryText({1, 0, 1 << 20}),
            "used 1.0 MiB of 1.0 MiB; ask for more with resources.memory")
      << "an old kernel does not tell the peak";
  EXPECT_THAT(OutOfMemoryText({1, 1 << 20, 0}), HasSubstr("memory of the host ran out"));
}

TEST_F(GroupTest, ControllersAreEnabledOneByOne) {
  EXPECT_THAT(root_.Enable({"memory", "pids"}), ElementsAre("memory", "pids"));
  EXPECT_EQ(Text(root_, "cgroup.subtree_control"), "+pids");
  ASSERT_EQ(unlink(JoinPath(root_.path(), "cgroup.subtree_control").c_str()), 0);
  EXPECT_THAT(root_.Enable({"memory"}), IsEmpty());
}

// Uses a group of the kernel below this process's own, where that is permitted.
TEST(RealGroup, KillsDaemonsThatHaveLeftTheirSessions) {
  std::string mount = "/sys/fs/cgroup";
  if (!FileExists(mount + "/cgroup.controllers")) mount += "/unified";
  const auto own = ReadFileRange("/proc/self/cgroup", 0, 4096);
  const Group group(absl::StrCat(mount, GroupOf(own.value_or("")), "/trainyard-test-", getpid()));
  if (!group.Make().ok() || !group.Exists()) {
    GTEST_SKIP() << "this process may make no control group at '" << group.path() << "'";
  }
  const pid_t child = fork();
  if (child == 0) {
    if (!group.Take(0).ok()) _exit(1);
    execl("/bin/sh", "sh", "-c",
          "for i in 1 2 3 4 5; do setsid sh -c 'setsid sleep 1000 & sleep 1000' & done; wait",
          nullptr);
    _exit(1);
  }
  EXPECT_TRUE(testing::WaitUntil([&] { return group.Processes().size() >= 11; }));
  EXPECT_TRUE(absl::IsUnavailable(group.Remove()));
  const absl::Duration begin = Clock::Real()->Uptime();
  EXPECT_TRUE(group.Kill().ok());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(group.WaitUntilEmpty(absl::Seconds(10)));
  std::cout << "a tree of daemons was gone after " << Clock::Real()->Uptime() - begin << "\n";
  EXPECT_TRUE(group.Remove().ok());
  EXPECT_FALSE(group.Exists());
}

TEST(GroupOf, IsThatOfTheUnifiedTree) {
  EXPECT_EQ(GroupOf("0::/system.slice/a.service\n"), "/system.slice/a.service");
  EXPECT_EQ(GroupOf("5:memory:/old\n0::/new\n"), "/new");
  EXPECT_EQ(GroupOf("5:memory:/old\n"), "");
}

}  // namespace
}  // namespace trainyard::cgroup
