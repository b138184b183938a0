// Tests that a thread of root has a user's rights only while it acts as that user, and that a
// program that is started as a user has no way back. The tests need root, and skip without it.
#include "worker/agent/act_as.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "common/base/system_accounts.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/agent/accounts.h"
#include "worker/agent/launch.h"
#include "worker/agent/launch_as.h"
#include "worker/run_dir/records.h"

namespace trainyard::agent {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

// Users that no account database knows.
const FileOwner kAnna = {
    .is_self = false, .uid = 61'001, .gid = 61'001, .groups = {61'001, 61'100}};
const FileOwner kBert = {.is_self = false, .uid = 61'002, .gid = 61'002, .groups = {61'002}};
const Account kAnnasAccount = {"anna", "/home/anna", "/bin/sh", kAnna};

// The folder of a test, into which every user may look.
class ActAsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_EQ(chmod(folder_.path().c_str(), 0711), 0);
    for (const FileOwner& owner : {kAnna, kBert}) {
      const std::string own = OwnFolder(owner);
      ASSERT_EQ(mkdir(own.c_str(), 0700), 0);
      ASSERT_EQ(chown(own.c_str(), owner.uid, owner.gid), 0);
    }
    folder_.Write("roots", "secret of root");
    ASSERT_EQ(chmod(folder_.File("roots").c_str(), 0600), 0);
  }

  std::string OwnFolder(const FileOwner& owner) const {
    return folder_.File(absl::StrCat("uid-", owner.uid));
  }

  const testing::TempDir folder_;
};

struct stat StatOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info;
}

TEST_F(ActAsTest, MakesFilesOfTheOwnerAndReadsNoOthers) {
  const std::string own = JoinPath(OwnFolder(kAnna), "file");
  {
    const ActAs as(kAnna);
    EXPECT_TRUE(ReplaceFile(own, "hers").ok());
    EXPECT_EQ(ReadFile(own).value(), "hers");
    EXPECT_TRUE(absl::IsPermissionDenied(ReadFile(folder_.File("roots")).status()));
    EXPECT_TRUE(absl::IsPermissionDenied(ListDirectory(OwnFolder(kBert)).status()));
    EXPECT_TRUE(absl::IsPermissionDenied(ReplaceFile(folder_.File("new"), "x")));
    EXPECT_NE(chown(own.c_str(), 0, 0), 0);
    EXPECT_NE(mknod(JoinPath(OwnFolder(kAnna), "null").c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
  }
  const struct stat info = StatOf(own);
  EXPECT_EQ(info.st_uid, kAnna.uid);
  EXPECT_EQ(info.st_gid, kAnna.gid);
  EXPECT_EQ(ReadFile(folder_.File("roots")).value(), "secret of root");
  EXPECT_TRUE(ReplaceFile(folder_.File("new"), "x").ok());
  EXPECT_EQ(StatOf(folder_.File("new")).st_uid, 0U);
}

TEST_F(ActAsTest, HasTheGroupsOfTheOwnerAndNotThoseOfRoot) {
  folder_.Write("of-lab", "for the lab");
  ASSERT_EQ(chown(folder_.File("of-lab").c_str(), 0, 61'100), 0);
  ASSERT_EQ(chmod(folder_.File("of-lab").c_str(), 0640), 0);
  folder_.Write("of-roots-group", "for root's group");
  ASSERT_EQ(chmod(folder_.File("of-roots-group").c_str(), 0640), 0);
  {
    const ActAs as(kAnna);
    EXPECT_TRUE(ReadFile(folder_.File("of-lab")).ok());
    EXPECT_FALSE(ReadFile(folder_.File("of-roots-group")).ok());
  }
  {
    const ActAs as(kBert);
    EXPECT_FALSE(ReadFile(folder_.File("of-lab")).ok());
  }
}

TEST_F(ActAsTest, AffectsNoOtherThread) {
  absl::Notification acts;
  absl::StatusOr<std::string> seen;
  std::thread other([&] {
    acts.WaitForNotification();
    seen = ReadFile(folder_.File("roots"));
  });
  {
    const ActAs as(kAnna);
    EXPECT_FALSE(ReadFile(folder_.File("roots")).ok());
    acts.Notify();
    other.join();
  }
  EXPECT_EQ(seen.value(), "secret of root");
}

TEST_F(ActAsTest, IsNotLedAwayByLinks) {
  const std::string link = JoinPath(OwnFolder(kAnna), "link");
  const std::string berts = JoinPath(OwnFolder(kBert), "file");
  ASSERT_TRUE(ReplaceFile(berts, "his", 0644).ok());
  const std::vector<std::string> targets = {folder_.File("roots"), berts, "/proc/self/environ",
                                            "/proc/1/environ", "/etc/shadow"};
  for (const std::string& target : targets) {
    (void)unlink(link.c_str());
    ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
    const ActAs as(kAnna);
    EXPECT_FALSE(ReadFile(link).ok()) << target;
    EXPECT_FALSE(OpenFile(link, O_WRONLY).ok()) << target;
  }
  // A process of bert's stands in his folder. Its entry in /proc is no way around the folder.
  const pid_t bert = fork();
  ASSERT_GE(bert, 0);
  if (bert == 0) {
    if (chdir(OwnFolder(kBert).c_str()) != 0 || setresgid(kBert.gid, kBert.gid, kBert.gid) != 0 ||
        setresuid(kBert.uid, kBert.uid, kBert.uid) != 0) {
      _exit(1);
    }
    pause();
    _exit(0);
  }
  ASSERT_TRUE(testing::WaitUntil([&] { return IsProcessOf(bert, kBert.uid); }));
  {
    const ActAs as(kAnna);
    EXPECT_FALSE(ReadFile(absl::StrCat("/proc/", bert, "/cwd/file")).ok());
  }
  kill(bert, SIGKILL);
  ASSERT_EQ(waitpid(bert, nullptr, 0), bert);
}

TEST_F(ActAsTest, DoesNothingForItself) {
  const ActAs as(FileOwner{});
  EXPECT_TRUE(ReadFile(folder_.File("roots")).ok());
}

TEST_F(ActAsTest, NeedsFoldersThatEverybodyMayPassAndNobodyMayExchange) {
  const std::string below = folder_.File("passage/below");
  ASSERT_TRUE(MakeDirectories(below, 0711).ok());
  EXPECT_TRUE(CheckPassage(below).ok()) << CheckPassage(below);
  ASSERT_EQ(chmod(folder_.File("passage").c_str(), 0700), 0);
  EXPECT_THAT(std::string(CheckPassage(below).message()), HasSubstr("has mode 0700"));
  ASSERT_EQ(chmod(folder_.File("passage").c_str(), 0777), 0);
  EXPECT_THAT(std::string(CheckPassage(below).message()), HasSubstr("nobody else may write"));
  ASSERT_EQ(chmod(folder_.File("passage").c_str(), 0711), 0);
  ASSERT_EQ(chown(folder_.File("passage").c_str(), kAnna.uid, kAnna.gid), 0);
  EXPECT_THAT(std::string(CheckPassage(below).message()), HasSubstr("belongs to uid 61001"));
}

TEST(Accounts, SayWhoIsMissing) {
  const auto missing = FindAccount("no-such-user-here");
  EXPECT_EQ(ErrorReason(missing.status()), error::kOwnerRefused);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("no account 'no-such-user-here'"));
  EXPECT_FALSE(FindAccount("4321").ok());
  EXPECT_FALSE(FindAccount("0").ok());
  const auto own = FindAccount(UserName(geteuid()));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_TRUE(own->owner.is_self);
  EXPECT_EQ(AccountOf(4321, 4322).name, "4321");
  EXPECT_EQ(AccountOf(4321, 4322).owner.groups, std::vector<gid_t>{4322});
}

TEST(OwnersEnvironment, HasWhatTrainersNeedAndNoSecrets) {
  const char* const variables[] = {"HOME=/root",           "USER=root",
                                   "PATH=/opt/evil",       "AWS_SECRET_ACCESS_KEY=x",
                                   "TRAINYARD_TOKEN=tyk_", "CUDA_VISIBLE_DEVICES=0",
                                   "NCCL_DEBUG=INFO",      "LANG=C.UTF-8",
                                   "LD_PRELOAD=/evil.so",  nullptr};
  const auto environment = EnvironmentOf(kAnnasAccount, "/cache", variables);
  EXPECT_THAT(environment,
              IsSupersetOf({"HOME=/home/anna", "USER=anna", "LOGNAME=anna", "SHELL=/bin/sh",
                            "XDG_CACHE_HOME=/cache", "CUDA_VISIBLE_DEVICES=0", "NCCL_DEBUG=INFO",
                            "LANG=C.UTF-8"}));
  for (const char* left_out :
       {"AWS_SECRET", "TRAINYARD_TOKEN", "LD_PRELOAD", "PATH=/opt", "root"}) {
    EXPECT_THAT(environment, Not(Contains(HasSubstr(left_out))));
  }
}

class LaunchAsTest : public ActAsTest {
 protected:
  // Runs a line of the shell as anna, and returns its output.
  std::string Run(const std::string& line) {
    const std::string output = folder_.File("output");
    auto log = OpenFile(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_TRUE(log.ok());
    LaunchOptions options;
    options.words = {"/bin/sh", "-c", line};
    options.directory = OwnFolder(kAnna);
    options.log = log->get();
    options.limits = {.core_bytes = 0, .open_files = 128};
    const auto pid = LaunchAs(kAnnasAccount, options);
    EXPECT_TRUE(pid.ok()) << pid.status();
    if (!pid.ok()) return "";
    EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
    return ReadFile(output).value_or("");
  }
};

TEST_F(LaunchAsTest, GivesUpEveryRight) {
  // A descriptor that is not closed by exec must not reach the program either.
  const UniqueFd open(::open(folder_.File("roots").c_str(), O_RDONLY));
  ASSERT_TRUE(open.valid());
  const std::string status = Run("cat /proc/self/status; ls /proc/self/fd | sort -n | tail -1");
  for (const char* line :
       {"Uid:\t61001\t61001\t61001\t61001\n", "Gid:\t61001\t61001\t61001\t61001\n",
        "Groups:\t61001 61100", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
        "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Umask:\t0077\n",
        "SigBlk:\t0000000000000000\n"}) {
    EXPECT_THAT(status, HasSubstr(line));
  }
  // `ls` has opened 3 itself.
  EXPECT_THAT(status, ::testing::EndsWith("\n3\n"));
}

TEST_F(LaunchAsTest, LeavesNoWayBack) {
  const std::string python =
      "import os\n"
      "for call in [lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),\n"
      "             lambda: os.setresuid(-1, 0, -1), lambda: os.chroot(\"/\")]:\n"
      "  try:\n    call(); print(\"back\")\n  except PermissionError: print(\"no\")\n";
  EXPECT_EQ(Run(absl::StrCat("exec /usr/bin/python3 -c '", python, "'")), "no\nno\nno\nno\nno\n");
  // A program with the set-user-ID bit runs as its caller.
  std::filesystem::copy_file("/usr/bin/id", folder_.File("id"));
  ASSERT_EQ(chmod(folder_.File("id").c_str(), 04755), 0);
  EXPECT_EQ(Run(absl::StrCat(folder_.File("id"), " -u")), "61001\n");
}

TEST_F(LaunchAsTest, SetsLimitsSessionFolderAndEnvironment) {
  setenv("TY_TEST_SECRET", "hidden", 1);
  const std::string output =
      Run("ulimit -c; ulimit -Hn; pwd; echo $HOME $USER $LOGNAME; env; "
          "cut -d' ' -f1,6 /proc/$$/stat; touch made; stat -c %a made");
  unsetenv("TY_TEST_SECRET");
  EXPECT_THAT(output,
              StartsWith(absl::StrCat("0\n128\n", OwnFolder(kAnna), "\n/home/anna anna anna\n")));
  EXPECT_THAT(output, Not(HasSubstr("hidden")));
  EXPECT_THAT(output, ::testing::EndsWith("\n600\n"));
  // The process leads a session of its own: both numbers are its pid.
  const std::vector<std::string> lines = absl::StrSplit(output, '\n');
  ASSERT_GE(lines.size(), 3U);
  const std::vector<std::string> ids = absl::StrSplit(lines[lines.size() - 3], ' ');
  ASSERT_EQ(ids.size(), 2U) << output;
  EXPECT_EQ(ids[0], ids[1]);
}

TEST_F(LaunchAsTest, SaysWhichProgramTheUserCannotExecute) {
  folder_.Write("hidden", "#!/bin/sh\n");
  ASSERT_EQ(chmod(folder_.File("hidden").c_str(), 0700), 0);
  LaunchOptions options;
  options.words = {folder_.File("hidden")};
  options.directory = OwnFolder(kAnna);
  options.log = STDERR_FILENO;
  const absl::Status refused = LaunchAs(kAnnasAccount, options).status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("as anna: cannot execute"), HasSubstr("Permission denied")));
}

// A record of a supervisor is written by its owner, who must not choose whom root kills.
TEST_F(LaunchAsTest, ARecordKillsNoProcessOfOthers) {
  const pid_t victim = fork();
  ASSERT_GE(victim, 0);
  if (victim == 0) {
    pause();
    _exit(0);
  }
  const run_dir::RunDir dir(OwnFolder(kAnna));
  run_dir::SupervisorRecord record;
  record.pid = victim;
  record.start_ticks = ReadProcess(victim).value().start_ticks;
  record.boot_id = BootId();
  record.ranks = {{0, victim, record.start_ticks}};
  {
    const ActAs as(kAnna);
    ASSERT_TRUE(run_dir::WriteSupervisorRecord(dir, record).ok());
  }
  EXPECT_TRUE(RecordDeath(dir, kAnna, *Clock::Real()).ok());
  EndProcesses(dir, kAnna);
  EXPECT_EQ(waitpid(victim, nullptr, WNOHANG), 0) << "the process of another user was killed";
  kill(victim, SIGKILL);
  ASSERT_EQ(waitpid(victim, nullptr, 0), victim);
  EXPECT_EQ(StatOf(dir.ExitPath()).st_uid, kAnna.uid);
}

TEST_F(LaunchAsTest, TheOwnersProcessesAreKilledWithTheAttempt) {
  const std::string root = OwnFolder(kAnna);
  const pid_t rank = fork();
  ASSERT_GE(rank, 0);
  if (rank == 0) {
    if (setresgid(kAnna.gid, kAnna.gid, kAnna.gid) != 0 ||
        setresuid(kAnna.uid, kAnna.uid, kAnna.uid) != 0) {
      _exit(1);
    }
    const std::string variable = absl::StrCat("TRAINYARD_ATTEMPT_DIR=", root);
    execle("/bin/sleep", "sleep", "1000", nullptr,
           std::vector<const char*>{variable.c_str(), nullptr}.data());
    _exit(1);
  }
  ASSERT_TRUE(
      testing::WaitUntil([&] { return ProcessVariable(rank, "TRAINYARD_ATTEMPT_DIR") == root; }));
  EXPECT_TRUE(absl::IsUnavailable(RecordDeath(run_dir::RunDir(root), kAnna, *Clock::Real())));
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(RecordDeath(run_dir::RunDir(root), kAnna, *Clock::Real()).ok());
}

}  // namespace
}  // namespace trainyard::agent
