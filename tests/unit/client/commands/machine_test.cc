// Tests up and down, with scripts instead of the daemons; tests/integration runs the real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "client/daemons/child.h"
#include "client/daemons/pid_file.h"
#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MachineTest : public ::testing::Test {
 protected:
  void Script(const std::string& name, const std::string& body) {
    const std::string path = runner_.home.Write(name, "#!/bin/sh\n" + body);
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
  // A process that stands for a daemon of `up`, as its pid file would name it.
  daemons::ProcessId Daemon(const std::string& pid_file, const std::string& note) {
    const auto pid =
        daemons::StartDaemon({"/bin/sh", "-c", "exec sleep 600"}, runner_.home.File("daemon.log"));
    EXPECT_TRUE(pid.ok());
    auto process = daemons::IdentifyProcess(*pid);
    EXPECT_TRUE(process.ok()) << process.status();
    process->note = note;
    EXPECT_TRUE(MakeDirectories(state_).ok());
    EXPECT_TRUE(daemons::WritePidFile(JoinPath(state_, pid_file), *process).ok());
    return *process;
  }

  FakeServer server_;
  CommandRunner runner_{""};
  const std::string state_ = runner_.home.File("state");
};

TEST_F(MachineTest, AServerThatDoesNotStartIsToldWithTheCauseFromItsLog) {
  Script("trainyard-server", "echo 'info: starting' >&2; echo \"error: $*\" >&2; exit 6\n");
  const CommandResult result = runner_.Run({"up", "--detach", "--state_dir", state_});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the server ended with code 6 while it started: error: --state_dir " +
                              state_ + "/server --listen unix:" + state_ + "/server/server.sock"),
                    HasSubstr("its log: " + state_ + "/server.log")));
  EXPECT_FALSE(FileExists(JoinPath(state_, "server.pid")));
}

TEST_F(MachineTest, BinariesThatAreMissingAreNamed) {
  const CommandResult result = runner_.Run({"up", "--detach", "--state_dir", state_});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("trainyard-server'; it belongs beside the trainyard binary"));
}

TEST_F(MachineTest, AStateDirectoryWhoseSocketWouldNotFitIsRefused) {
  const CommandResult result =
      runner_.Run({"up", "--detach", "--state_dir", "/tmp/" + std::string(120, 'x')});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("sockets take 107"));
}

TEST_F(MachineTest, WhatIsUpAlreadyStaysAsItIs) {
  const auto server = Daemon("server.pid", server_.address());
  const auto worker = Daemon("worker.pid", "lab-1");
  const CommandResult result = runner_.Run({"up", "--state_dir", state_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("already up: server at " + server_.address()),
                                HasSubstr("export TRAINYARD_SERVER=" + server_.address())));
  EXPECT_TRUE(daemons::RunningProcess(JoinPath(state_, "server.pid")).has_value());
  EXPECT_EQ(runner_.Run({"down", "--state_dir", state_}).exit_code, 0);
  EXPECT_FALSE(daemons::IdentifyProcess(server.pid).ok());
  EXPECT_FALSE(daemons::IdentifyProcess(worker.pid).ok());
}

TEST_F(MachineTest, DownRefusesWhileJobsRunAndCancelsThemWhereTold) {
  const auto server = Daemon("server.pid", server_.address());
  server_.AddJob("small", v1::JOB_STATE_RUNNING);
  server_.AddJob("other", v1::JOB_STATE_QUEUED);
  const CommandResult refused = runner_.Run({"down", "--state_dir", state_});
  EXPECT_EQ(refused.exit_code, 6);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("jobs/1 runs"), HasSubstr("trainyard down --cancel")));
  EXPECT_TRUE(daemons::IdentifyProcess(server.pid).ok());
  const CommandResult done = runner_.Run({"down", "--state_dir", state_, "--cancel"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("cancelling jobs/2, jobs/1"));
  EXPECT_FALSE(daemons::IdentifyProcess(server.pid).ok());
}

TEST_F(MachineTest, DownWithoutAnythingUpIsFine) {
  const CommandResult result = runner_.Run({"down", "--state_dir", state_});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("nothing of `trainyard up` runs"));
}

TEST_F(MachineTest, AServerThatDoesNotAnswerIsStoppedByForceOnly) {
  const auto server = Daemon("server.pid", "unix:" + state_ + "/none.sock");
  EXPECT_EQ(runner_.Run({"down", "--state_dir", state_}).exit_code, 9);
  EXPECT_TRUE(daemons::IdentifyProcess(server.pid).ok());
  EXPECT_EQ(runner_.Run({"down", "--state_dir", state_, "--force"}).exit_code, 0);
  EXPECT_FALSE(daemons::IdentifyProcess(server.pid).ok());
}

}  // namespace
}  // namespace trainyard::testing
