// Tests `--server ssh://` with programs in place of ssh, which run the far end on this machine, or
// fail as ssh would. tests/integration/ssh_test.cc does it with a real sshd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/link/ssh_tunnel.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/wait.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Ssh : public ::testing::Test {
 protected:
  Ssh() : path_(std::getenv("PATH")) {
    // The program does so too: a connection that breaks is an error of the call that writes to it.
    std::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(setenv("PATH", absl::StrCat(bin_.path(), ":", BinaryPath(""), ":", path_).c_str(), 1),
              0);
  }
  ~Ssh() override { EXPECT_EQ(setenv("PATH", path_.c_str(), 1), 0); }

  // Puts a program in place of ssh. In `script`, $far is the command for the far end.
  void BeSsh(const std::string& script) {
    const std::string log = bin_.File("calls");
    const std::string program = bin_.Write(
        "ssh",
        absl::StrCat("#!/bin/sh\necho \"$@\" >> ", log, "\nfor far; do :; done\n", script, "\n"));
    ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  }
  std::string Calls() { return ReadFile(bin_.File("calls")).value_or(""); }
  std::string Address() { return absl::StrCat("ssh://lab", server_.address().substr(5)); }
  CommandResult Run(const std::vector<std::string>& args) {
    CommandRunner runner(Address());
    return runner.Run(args);
  }

  const std::string path_;
  TempDir bin_;
  FakeServer server_;
};

TEST_F(Ssh, CommandsReachTheServerThroughIt) {
  BeSsh("exec sh -c \"$far\"");
  server_.AddJob("origin", v1::JOB_STATE_RUNNING);
  const CommandResult result = Run({"ls", "-o", "name"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jobs/1\n");
  EXPECT_THAT(Calls(), HasSubstr("-- lab exec sh -c"));
}

TEST_F(Ssh, WhatTheShellPrintsDoesNoHarm) {
  BeSsh("echo 'Welcome to lab!'; printf 'no newline'; echo hm >&2; exec sh -c \"$far\"");
  EXPECT_EQ(Run({"ls", "-o", "name"}).exit_code, 0);
  BeSsh("yes");
  const CommandResult result = Run({"ls"});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, HasSubstr("prints without end"));
}

TEST_F(Ssh, ItsErrorsAreToldAsItsOwn) {
  BeSsh("echo 'lab: Permission denied (publickey).' >&2; exit 255");
  const CommandResult refused = Run({"ls"});
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, HasSubstr("ssh to 'lab' failed: lab: Permission denied (publickey); "));
  BeSsh("echo 'ssh: connect to host lab port 22: Connection refused' >&2; exit 255");
  EXPECT_EQ(Run({"ls"}).exit_code, 9);
  BeSsh("exec sh -c 'exec no-such-program'");
  EXPECT_THAT(Run({"ls"}).err, HasSubstr("there is no trainyard on that host"));
}

TEST_F(Ssh, WithoutTheProgramItSaysSo) {
  ASSERT_EQ(setenv("PATH", bin_.path().c_str(), 1), 0);
  const CommandResult result = Run({"ls"});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, HasSubstr("there is no program 'ssh' in your PATH"));
}

TEST_F(Ssh, ErrorsOfTheFarEndNameItsHost) {
  BeSsh("exec sh -c \"$far\"");
  server_.Stop();
  const CommandResult result = Run({"ls"});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, AllOf(HasSubstr("on 'lab': no server answers at 'unix:"),
                                HasSubstr("start one with `trainyard up`")));
}

TEST_F(Ssh, TheFarEndFindsItsServerByItself) {
  BeSsh(absl::StrCat("HOME=", bin_.path(), " XDG_STATE_HOME= exec sh -c \"$far\""));
  CommandRunner runner("ssh://lab");
  const CommandResult none = runner.Run({"ls"});
  EXPECT_EQ(none.exit_code, 9);
  EXPECT_THAT(none.err,
              AllOf(HasSubstr("on 'lab': no server answers\n"),
                    HasSubstr("tried the server of your own `trainyard up`, unix:" + bin_.path()),
                    HasSubstr("start one there with `trainyard up`")));
  const std::string folder = bin_.File(".local/state/trainyard/server");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_EQ(symlink(server_.address().substr(5).c_str(), JoinPath(folder, "server.sock").c_str()),
            0);
  EXPECT_EQ(runner.Run({"ls", "-o", "name"}).exit_code, 0);
}

TEST_F(Ssh, CtrlCEndsTheWaitForIt) {
  BeSsh("echo $$ > " + bin_.File("pid") + "; exec sleep 600");
  CommandRunner runner(Address());
  std::thread interrupter([&] {
    EXPECT_TRUE(WaitUntil([&] { return FileSize(bin_.File("pid")).value_or(0) > 0; }));
    runner.interrupt.Trigger();
  });
  EXPECT_EQ(runner.Run({"ls"}).exit_code, 130);
  interrupter.join();
  // It has ended and was reaped.
  const std::string pid = ReadFile(bin_.File("pid")).value_or("1");
  EXPECT_FALSE(FileExists("/proc/" + pid.substr(0, pid.find('\n'))));
}

class Tunnel : public Ssh {
 protected:
  // Runs the far end until the file `broken` exists. Then ssh fails with `message`.
  void BeFragileSsh(const std::string& message) {
    BeSsh(absl::StrCat("[ ! -e ", bin_.File("broken"), " ] || { echo '", message,
                       "' >&2; exit 255; }\necho $$ >> ", bin_.File("pids"),
                       "\nexec sh -c \"$far\""));
  }
  absl::StatusOr<v1::ListJobsResponse> List(link::ServerLink& link) {
    return link.Call(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest());
  }
  // Ends the far end that was started last, as if the network had.
  void Cut() {
    const std::string pids = ReadFile(bin_.File("pids")).value_or("");
    const size_t line = pids.rfind('\n', pids.size() - 2);
    kill(std::atoi(pids.c_str() + (line == std::string::npos ? 0 : line + 1)), SIGKILL);
  }
  int Starts() {
    const std::string calls = Calls();
    return static_cast<int>(std::count(calls.begin(), calls.end(), '\n'));
  }

  link::Interrupt interrupt_;
};

TEST_F(Tunnel, ANewSshIsStartedWhenTheConnectionBreaks) {
  BeFragileSsh("");
  const auto link = link::ServerLink::Connect(Address(), interrupt_);
  ASSERT_TRUE(link.ok()) << link.status();
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(Starts(), i);
    Cut();
    // The first calls may see the end of the old connection.
    EXPECT_TRUE(WaitUntil([&] { return List(**link).ok(); }));
  }
  EXPECT_THAT(Calls(), HasSubstr("BatchMode=yes"));
}

TEST_F(Tunnel, AHostThatIsAwayIsTriedAgainAndTheReasonIsTold) {
  BeFragileSsh("ssh: connect to host lab port 22: No route to host");
  const auto link = link::ServerLink::Connect(Address(), interrupt_);
  ASSERT_TRUE(link.ok()) << link.status();
  bin_.Write("broken", "");
  Cut();
  EXPECT_TRUE(WaitUntil([&] {
    const absl::Status status = List(**link).status();
    return absl::IsUnavailable(status) && absl::StrContains(status.message(), "No route to host");
  }));
  ASSERT_TRUE(RemoveTree(bin_.File("broken")).ok());
  EXPECT_TRUE(WaitUntil([&] { return List(**link).ok(); }));
}

TEST_F(Tunnel, WhoWasRefusedDoesNotTryAgain) {
  BeFragileSsh("anna@lab: Permission denied (publickey).");
  const auto link = link::ServerLink::Connect(Address(), interrupt_);
  ASSERT_TRUE(link.ok()) << link.status();
  bin_.Write("broken", "");
  Cut();
  EXPECT_TRUE(WaitUntil([&] { return absl::IsPermissionDenied(List(**link).status()); }));
  ASSERT_TRUE(RemoveTree(bin_.File("broken")).ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(absl::IsPermissionDenied(List(**link).status()));
  EXPECT_EQ(Starts(), 2);
}

TEST_F(Tunnel, StrangersCannotUseItsSocket) {
  BeFragileSsh("");
  const auto tunnel =
      link::SshTunnel::Open(*link::ParseSshAddress(Address()), interrupt_, *Clock::Real());
  ASSERT_TRUE(tunnel.ok()) << tunnel.status();
  const std::string name = (*tunnel)->target().substr(std::string("unix-abstract:").size());
  // Another process connects, and sees the end of the connection at once.
  const std::string script =
      absl::StrCat("import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(b'\\x00", name,
                   "')\nassert s.recv(1) == b''\n");
  Process::Options options;
  options.args = {"/usr/bin/python3", "-c", script};
  const auto result = RunProcess(std::move(options), bin_.path(), absl::Seconds(30));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0) << result->err;
}

}  // namespace
}  // namespace trainyard::testing
