// Tests pid files, and above all that no process is signalled by mistake.
#include "client/daemons/pid_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/daemons/child.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::daemons {
namespace {

class PidFile : public ::testing::Test {
 protected:
  pid_t StartSleeper(const std::string& script = "exec sleep 600") {
    const auto pid = StartDaemon({"/bin/sh", "-c", script}, dir_.File("log"));
    EXPECT_TRUE(pid.ok()) << pid.status();
    return pid.value_or(0);
  }

  trainyard::testing::TempDir dir_;
  const std::string path_ = dir_.File("pid");
};

TEST_F(PidFile, NamesAProcessThatRuns) {
  auto self = IdentifyProcess(getpid());
  ASSERT_TRUE(self.ok()) << self.status();
  self->note = "unix:/x y";
  ASSERT_TRUE(WritePidFile(path_, *self).ok());
  const auto running = RunningProcess(path_);
  ASSERT_TRUE(running.has_value());
  EXPECT_EQ(running->pid, getpid());
  EXPECT_EQ(running->note, "unix:/x y");
}

TEST_F(PidFile, APidThatAnotherProcessGotIsNotOurs) {
  auto self = IdentifyProcess(getpid());
  ASSERT_TRUE(self.ok());
  ProcessId other_start = *self;
  other_start.start_ticks -= 1;
  ASSERT_TRUE(WritePidFile(path_, other_start).ok());
  EXPECT_FALSE(RunningProcess(path_).has_value());
  ProcessId other_boot = *self;
  other_boot.boot_id = "0";
  ASSERT_TRUE(WritePidFile(path_, other_boot).ok());
  EXPECT_FALSE(RunningProcess(path_).has_value());
  // If the process were signalled, this test would end here.
  EXPECT_TRUE(StopProcess(other_start, absl::Seconds(1), *Clock::Real()).ok());
}

TEST_F(PidFile, AbsentAndDamagedFilesNameNothing) {
  EXPECT_FALSE(RunningProcess(path_).has_value());
  for (const char* text : {"", "12", "x\ny\nz\n\n", "1\n2\n3\n4\n", "-5\n1\nb\n\n"}) {
    ASSERT_TRUE(WriteFileAtomically(path_, text).ok());
    EXPECT_FALSE(RunningProcess(path_).has_value()) << text;
  }
}

TEST_F(PidFile, AProcessThatHasEndedDoesNotRun) {
  const pid_t pid = StartSleeper("exit 3");
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(IdentifyProcess(pid).ok());  // a zombie
  int exit_code = 0;
  EXPECT_TRUE(HasEnded(pid, exit_code));
  EXPECT_EQ(exit_code, 3);
}

TEST_F(PidFile, StoppingEndsTheProcess) {
  const pid_t pid = StartSleeper();
  const auto process = IdentifyProcess(pid);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE(StopProcess(*process, absl::Seconds(30), *Clock::Real()).ok());
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST_F(PidFile, OneThatIgnoresTermIsKilled) {
  // Opening a named pipe waits until the other side has done so too: the trap is set then.
  const std::string ready = dir_.File("ready");
  ASSERT_EQ(mkfifo(ready.c_str(), 0600), 0);
  const pid_t pid = StartSleeper("trap '' TERM; : > " + ready + "; while :; do sleep 600; done");
  ASSERT_TRUE(OpenFile(ready, O_RDONLY).ok());
  const auto process = IdentifyProcess(pid);
  ASSERT_TRUE(process.ok());
  EXPECT_TRUE(StopProcess(*process, absl::Milliseconds(50), *Clock::Real()).ok());
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

}  // namespace
}  // namespace trainyard::daemons
