// Tests up and down, with scripts instead of the daemons; tests/integration runs the real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/daemons/child.h"
#include "client/daemons/pid_file.h"
#include "common/base/files.h"
#include "tests/testing/wait.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(result.err,
              HasSubstr("trainyard-server'; it belongs beside the trainyard binary, or "));
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

// Another server answers at the address, so the one that was started ends.
TEST_F(MachineTest, AServerWhoseAddressIsTakenIsNotTakenForUp) {
  Script("trainyard-server", "echo \"error: the address is in use\" >&2; exit 1\n");
  Script("trainyard-worker", "exec sleep 600\n");
  const CommandResult result =
      runner_.Run({"up", "--detach", "--state-dir", state_, "--listen", server_.address()});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("the address is in use"));
  EXPECT_FALSE(FileExists(JoinPath(state_, "worker.pid")));
}

// The server still knows the worker of an earlier day, and takes it for alive.
TEST_F(MachineTest, AWorkerThatEndsIsNotTakenForUp) {
  const auto server = Daemon("server.pid", server_.address());
  v1::Worker remembered;
  remembered.set_name("workers/lab-1");
  remembered.set_state(v1::WORKER_STATE_ACTIVE);
  server_.AddWorker(remembered);
  Script("trainyard-worker", "echo '4 CPU devices need 4 processors' >&2; exit 1\n");
  const CommandResult result = runner_.Run(
      {"up", "--detach", "--state-dir", state_, "--worker-name", "lab-1", "--cpu-devices", "4"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("the worker ended with code 1 while it started: 4 CPU devices "
                                    "need 4 processors"));
  EXPECT_FALSE(FileExists(JoinPath(state_, "worker.pid")));
  EXPECT_EQ(runner_.Run({"down", "--state-dir", state_}).exit_code, 0);
}

// Puts scripts in the place of systemd's programs, which write down how they are called.
class UserServiceTest : public MachineTest {
 protected:
  UserServiceTest() {
    const char* path = getenv("PATH");
    path_ = path == nullptr ? "" : path;
    setenv("PATH", absl::StrCat(runner_.home.path(), ":", path_).c_str(), 1);
    for (const char* name : {"trainyard", "trainyard-server", "trainyard-worker"}) {
      Script(name, "exit 1\n");
    }
    Script("loginctl", absl::StrCat("echo loginctl $* >> ", calls_, "\n"));
    Script("systemctl", absl::StrCat("echo $* >> ", calls_, "\n"));
  }
  ~UserServiceTest() override { setenv("PATH", path_.c_str(), 1); }

  std::string Calls() const { return ReadFileRange(calls_, 0, 4096).value_or(""); }

  // Runs `up --service`. Two processes stand for the daemons that systemd starts.
  CommandResult UpAsService() {
    std::thread systemd([this] {
      const bool is_asked = WaitUntil([this] { return absl::StrContains(Calls(), "restart"); });
      EXPECT_TRUE(is_asked);
      server_id_ = Daemon("server.pid", server_.address());
      worker_id_ = Daemon("worker.pid", "lab-1");
    });
    CommandResult result =
        runner_.Run({"up", "--service", "--state-dir", state_, "--cpu-devices", "2"});
    systemd.join();
    return result;
  }

  std::string path_;
  const std::string calls_ = runner_.home.File("calls");
  const std::string unit_ = runner_.home.File(".config/systemd/user/trainyard.service");
  daemons::ProcessId server_id_;
  daemons::ProcessId worker_id_;
};

TEST_F(UserServiceTest, StartsBothWithTheMachineAndForgetsItAgain) {
  const CommandResult up = UpAsService();
  EXPECT_EQ(up.exit_code, 0) << up.err;
  EXPECT_EQ(Calls(),
            "--user show-environment\n--user daemon-reload\n--user enable trainyard.service\n"
            "--user restart trainyard.service\nloginctl enable-linger\n");
  const std::string unit = ReadFileRange(unit_, 0, 4096).value_or("");
  EXPECT_THAT(unit,
              HasSubstr(absl::StrCat("ExecStart=\"", runner_.home.path(),
                                     "/trainyard\" up --stay --state-dir \"", state_, "\"\n")));
  EXPECT_THAT(unit, HasSubstr("KillMode=process")) << "a stop must not end ranks";
  EXPECT_THAT(ReadFileRange(JoinPath(state_, "up.json"), 0, 4096).value_or(""),
              HasSubstr("--cpu-devices"));
  EXPECT_THAT(up.err, AllOf(HasSubstr("as a service of yours: server at " + server_.address()),
                            Not(HasSubstr("log in"))));

  const CommandResult down = runner_.Run({"down", "--state-dir", state_});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_THAT(Calls(), HasSubstr("--user disable --now trainyard.service\n--user daemon-reload\n"));
  EXPECT_FALSE(FileExists(unit_));
  EXPECT_FALSE(daemons::IdentifyProcess(server_id_.pid).ok());
  EXPECT_FALSE(daemons::IdentifyProcess(worker_id_.pid).ok());
}

TEST_F(UserServiceTest, SaysSoIfItWillNotStartBeforeALogin) {
  Script("loginctl", "exit 1\n");
  const CommandResult up = UpAsService();
  EXPECT_EQ(up.exit_code, 0) << up.err;
  EXPECT_THAT(up.err, HasSubstr("it starts when you log in, and ends when you log out; `sudo "
                                "loginctl enable-linger"));
  EXPECT_EQ(runner_.Run({"down", "--state-dir", state_}).exit_code, 0);
}

TEST_F(UserServiceTest, WithoutASystemdOfTheUserNothingIsChanged) {
  Script("systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1\n");
  const CommandResult up = runner_.Run({"up", "--service", "--state-dir", state_});
  EXPECT_EQ(up.exit_code, 6);
  EXPECT_THAT(up.err, AllOf(HasSubstr("no systemd runs for you here"),
                            HasSubstr("Failed to connect to bus: No medium found"),
                            HasSubstr("`trainyard up --detach` starts both without one")));
  EXPECT_FALSE(FileExists(unit_));
}

TEST_F(UserServiceTest, DownCancelsNothingForAServiceThatItCannotEnd) {
  ASSERT_EQ(UpAsService().exit_code, 0);
  Script("systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1\n");
  const CommandResult down = runner_.Run({"down", "--cancel", "--state-dir", state_});
  EXPECT_EQ(down.exit_code, 6);
  EXPECT_THAT(down.err,
              AllOf(HasSubstr("no systemd runs for you here"), Not(HasSubstr("cancelling"))));
  EXPECT_TRUE(FileExists(unit_));
  EXPECT_TRUE(daemons::IdentifyProcess(server_id_.pid).ok());
  EXPECT_TRUE(daemons::StopProcess(server_id_, absl::Seconds(10), *Clock::Real()).ok());
  EXPECT_TRUE(daemons::StopProcess(worker_id_, absl::Seconds(10), *Clock::Real()).ok());
}

TEST_F(UserServiceTest, TheServiceOfAnotherStateDirectoryStays) {
  ASSERT_TRUE(MakeDirectories(unit_.substr(0, unit_.rfind('/'))).ok());
  const std::string other = "ExecStart=\"/usr/bin/trainyard\" up --stay --state-dir \"/other\"\n";
  runner_.home.Write(".config/systemd/user/trainyard.service", other);
  const CommandResult up = runner_.Run({"up", "--service", "--state-dir", state_});
  EXPECT_EQ(up.exit_code, 6);
  EXPECT_THAT(up.err, HasSubstr("is the service of another state directory"));
  EXPECT_EQ(runner_.Run({"down", "--state-dir", state_}).exit_code, 0);
  EXPECT_EQ(ReadFileRange(unit_, 0, 4096).value_or(""), other);
}

TEST_F(MachineTest, AFolderOfDataThatIsNotThereIsRefused) {
  const CommandResult result =
      runner_.Run({"up", "--detach", "--state-dir", state_, "--dataset-dir", "/nonexistent"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--dataset-dir: there is no folder '/nonexistent'"));
}

TEST_F(MachineTest, AWorkerNameThatTheServerWouldRefuseIsRefusedAtOnce) {
  for (const std::string& name : {std::string("a/b"), std::string("Lab"), std::string(64, 'x')}) {
    const CommandResult result =
        runner_.Run({"up", "--detach", "--state-dir", state_, "--worker-name", name});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("'" + name +
                                      "' is no name of a worker; expected 1 to 63 "
                                      "lower-case letters, digits and dashes"));
  }
}

TEST_F(MachineTest, AnInterruptedUpLeavesNoDaemonBehind) {
  const auto server = Daemon("server.pid", server_.address());
  Script("trainyard-worker", "exec sleep 600\n");
  std::optional<daemons::ProcessId> worker;
  std::thread interrupter([&] {
    WaitUntil([&] {
      worker = daemons::RunningProcess(JoinPath(state_, "worker.pid"));
      return worker.has_value();
    });
    runner_.interrupt.Trigger();
  });
  EXPECT_EQ(runner_.Run({"up", "--detach", "--state-dir", state_}).exit_code, 130);
  interrupter.join();
  ASSERT_TRUE(worker.has_value());
  EXPECT_FALSE(daemons::IdentifyProcess(worker->pid).ok());
  EXPECT_FALSE(FileExists(JoinPath(state_, "worker.pid")));
  ASSERT_TRUE(daemons::StopProcess(server, absl::Seconds(10), *Clock::Real()).ok());
}

// A worker that writes its flags to its log and registers.
constexpr char kWorkerScript[] =
    "echo \"flags: $*\" >&2; echo 'info registered worker=x session=1' >&2; exec sleep 600\n";

TEST_F(MachineTest, UpStartsAgainWithTheFlagsOfBefore) {
  const auto server = Daemon("server.pid", server_.address());
  Script("trainyard-worker", kWorkerScript);
  const std::vector<std::string> up = {"up", "--detach", "--state-dir", state_};
  std::vector<std::string> first = up;
  first.insert(first.end(), {"--cpu-devices", "3", "--share-cpus", "--dataset-dir",
                             runner_.home.path(), "--worker-name", "lab-1"});
  const CommandResult result = runner_.Run(first);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("as before")));

  const auto stop_worker = [&] {
    const auto worker = daemons::RunningProcess(JoinPath(state_, "worker.pid"));
    ASSERT_TRUE(worker.has_value());
    ASSERT_TRUE(daemons::StopProcess(*worker, absl::Seconds(10), *Clock::Real()).ok());
  };
  stop_worker();
  const CommandResult again = runner_.Run(up);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const std::string flags = absl::StrCat("--cpu-devices 3 --dataset-dir ", runner_.home.path(),
                                         " --share-cpus --worker-name lab-1");
  EXPECT_THAT(again.err, HasSubstr("as before: " + flags));
  const std::string log = *ReadFile(JoinPath(state_, "worker.log"));
  EXPECT_THAT(log.substr(log.rfind("flags:")),
              AllOf(HasSubstr("--name lab-1 --cpu_devices 3 --share_cpus"),
                    HasSubstr("--dataset_dir " + runner_.home.path())));

  stop_worker();
  std::vector<std::string> reset = up;
  reset.emplace_back("--reset");
  const CommandResult forgotten = runner_.Run(reset);
  EXPECT_EQ(forgotten.exit_code, 0) << forgotten.err;
  EXPECT_THAT(forgotten.err, Not(HasSubstr("as before")));
  EXPECT_EQ(runner_.Run({"down", "--state-dir", state_}).exit_code, 0);
}

TEST_F(MachineTest, FlagsThatDifferFromThoseThatRunAreRefused) {
  const auto server = Daemon("server.pid", server_.address());
  Script("trainyard-worker", kWorkerScript);
  ASSERT_EQ(runner_.Run({"up", "--detach", "--state-dir", state_, "--cpu-devices", "2"}).exit_code,
            0);
  EXPECT_EQ(runner_.Run({"up", "--detach", "--state-dir", state_, "--cpu-devices", "2"}).exit_code,
            0);
  const CommandResult result =
      runner_.Run({"up", "--detach", "--state-dir", state_, "--cpu-devices", "4"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, AllOf(HasSubstr("`--cpu-devices 4` is not what runs already"),
                                HasSubstr("--cpu-devices 2"), HasSubstr("`trainyard down`")));
  EXPECT_EQ(runner_.Run({"down", "--state-dir", state_}).exit_code, 0);
}

TEST_F(MachineTest, AFileOfFlagsThatIsNoneIsRefusedAndForgottenWhereTold) {
  const auto server = Daemon("server.pid", server_.address());
  Script("trainyard-worker", kWorkerScript);
  ASSERT_TRUE(WriteFileAtomically(JoinPath(state_, "up.json"), "{\"format\": 2}").ok());
  const CommandResult result = runner_.Run({"up", "--detach", "--state-dir", state_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("up.json' does not hold the flags"));
  EXPECT_EQ(runner_.Run({"up", "--detach", "--state-dir", state_, "--reset"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"down", "--state-dir", state_}).exit_code, 0);
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
