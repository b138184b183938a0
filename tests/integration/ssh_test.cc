// Reaches a server through a real sshd, as from a laptop: with every kind of call, with everything
// that ssh refuses, and while connections break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "tests/integration/sshd.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SshTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sshd = Sshd::Make();
    if (absl::IsUnavailable(sshd.status())) GTEST_SKIP() << sshd.status().message();
    ASSERT_TRUE(sshd.ok()) << sshd.status();
    sshd_ = *std::move(sshd);
    sshd_->Start();
  }

  std::string Socket() const { return yard_.address().substr(std::string("unix:").size()); }
  // The yard's server, as the account of the test reaches it.
  std::string Address() const { return sshd_->Address(sshd_->account(), Socket()); }

  Process::Options Client(const std::string& server, const std::vector<std::string>& args) {
    Process::Options options;
    options.args = {Yard::Binary("trainyard"), "--server", server};
    options.args.insert(options.args.end(), args.begin(), args.end());
    options.environment = sshd_->Environment();
    return options;
  }
  ProcessResult Run(const std::string& server, const std::vector<std::string>& args) {
    auto result = RunProcess(Client(server, args), sshd_->dir().path(), kPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : ProcessResult();
  }
  ProcessResult Run(const std::vector<std::string>& args) { return Run(Address(), args); }

  // Starts a client that goes on until its job ends.
  std::unique_ptr<Process> Start(const std::vector<std::string>& args, const std::string& name) {
    Process::Options options = Client(Address(), args);
    options.stdout_path = sshd_->dir().File(name + ".out");
    options.stderr_path = sshd_->dir().File(name + ".err");
    auto process = Process::Start(std::move(options));
    EXPECT_TRUE(process.ok()) << process.status();
    return process.ok() ? *std::move(process) : nullptr;
  }
  std::string Written(const std::string& file) {
    return ReadFile(sshd_->dir().File(file)).value_or("");
  }

  std::unique_ptr<Sshd> sshd_;
  Yard yard_;
};

TEST_F(SshTest, EveryKindOfCallWorks) {
  yard_.Start();
  const std::string spec = sshd_->dir().Write(
      "spec.yaml", SmallSpec("remote", 1, 2, 1000, "checkpoint: {every: 10 steps}\n"));
  const ProcessResult submitted = Run({"submit", spec});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_EQ(submitted.out, "jobs/1\n");
  const ProcessResult watched = Run({"watch", "1"});
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_THAT(watched.out + watched.err, HasSubstr("SUCCEEDED"));
  EXPECT_THAT(Run({"ls"}).out, HasSubstr("remote"));
  const ProcessResult logs = Run({"logs", "1", "-f"});
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_GT(logs.out.size(), 100u);
  EXPECT_THAT(Run({"metrics", "1"}).out, HasSubstr("train.loss"));
  EXPECT_EQ(Run({"top", "--once"}).exit_code, 0);
  const std::string folder = sshd_->dir().File("checkpoint");
  const ProcessResult fetched = Run({"checkpoints", "get", "1", "-O", folder});
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_TRUE(FileExists(JoinPath(folder, "MANIFEST")));
}

TEST_F(SshTest, ANamedServerIsReachedLikeAnother) {
  yard_.StartServer();
  const auto run = [this](const std::vector<std::string>& args) {
    Process::Options options = Client("", args);
    options.args.erase(options.args.begin() + 1, options.args.begin() + 3);
    return RunProcess(std::move(options), sshd_->dir().path(), kPatience).value_or(ProcessResult());
  };
  EXPECT_EQ(run({"contexts", "add", "lab", Address(), "--use"}).exit_code, 0);
  const ProcessResult listed = run({"ls"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
}

TEST_F(SshTest, WhatSshRefusesIsToldAsSuch) {
  yard_.StartServer();
  const auto expect = [this](const std::string& server, int exit_code, const std::string& text) {
    const ProcessResult result = Run(server, {"ls"});
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("error: ssh to '"), HasSubstr(text)));
  };
  const std::string account = sshd_->account();
  expect("ssh://no-such-host.invalid", 9, "Could not resolve hostname no-such-host.invalid");
  // Nothing listens on the lowest port of a machine for tests.
  expect(absl::StrCat("ssh://", account, "@127.0.0.1:1"), 9, "Connection refused");
  expect(sshd_->Address("no-such-account", ""), 5, "Permission denied (publickey)");
  sshd_->Configure("IdentityFile /dev/null\nHost *\n  PreferredAuthentications none");
  expect(Address(), 5, "Permission denied (publickey)");
  sshd_->Configure("StrictHostKeyChecking yes\nUserKnownHostsFile /dev/null");
  expect(Address(), 5, "Host key verification failed");
  sshd_->Configure("NoSuchOption yes");
  expect(Address(), 9, "terminating, 1 bad configuration options");
}

TEST_F(SshTest, AServerThatIsNotThereIsToldWithItsHost) {
  const ProcessResult named = Run({"ls"});
  EXPECT_EQ(named.exit_code, 9);
  EXPECT_THAT(named.err, AllOf(HasSubstr("on '127.0.0.1': no server answers at 'unix:" + Socket()),
                               HasSubstr("No such file or directory")));
}

TEST_F(SshTest, AnAccountMayBeGoodForNothingButTheServer) {
  yard_.StartServer();
  sshd_->Restrict(sshd_->account(),
                  absl::StrCat("restrict,command=\"trainyard dial-stdio ", Socket(), "\""));
  const ProcessResult result = Run(sshd_->Address(sshd_->account(), ""), {"ls"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(SshTest, FollowersOutliveBrokenConnections) {
  yard_.Start();
  // The job goes on until it is cancelled, however slow the followers are.
  const std::string job = yard_.Submit(SmallSpec("long", 1, 10'000, 1000));
  const auto watch = Start({"watch", job}, "watch");
  const auto logs = Start({"logs", job, "-f"}, "logs");
  ASSERT_TRUE(WaitUntil(
      [&] { return !Written("logs.out").empty() && !Written("watch.err").empty(); }, kPatience));
  sshd_->Kill();
  // Both have noticed, and try to come back, when sshd does.
  ASSERT_TRUE(WaitUntil(
      [&] {
        return absl::StrContains(Written("watch.err"), "lost") &&
               absl::StrContains(Written("logs.err"), "lost");
      },
      kPatience))
      << Written("watch.err") << Written("logs.err");
  sshd_->Start();
  const size_t logged_before = Written("logs.out").size();
  ASSERT_TRUE(WaitUntil([&] { return Written("logs.out").size() > logged_before; }, kPatience));
  EXPECT_EQ(Run({"cancel", job}).exit_code, 0);
  const auto watched = watch->Wait(kPatience);
  ASSERT_TRUE(watched.ok()) << watched.status();
  EXPECT_THAT(watched->out + watched->err, HasSubstr("CANCELLED"));
  const auto logged = logs->Wait(kPatience);
  ASSERT_TRUE(logged.ok()) << logged.status();
  EXPECT_EQ(logged->exit_code, 0) << logged->err;
  EXPECT_EQ(logged->out, yard_.Cli({"logs", job}).out) << "a part of the log is missing or doubled";
}

TEST_F(SshTest, AClientThatIsKilledLeavesNothingBehind) {
  yard_.Start();
  const std::string job = yard_.Submit(SmallSpec("long", 1, 6, 4000));
  const auto watch = Start({"watch", job}, "watch");
  ASSERT_TRUE(
      WaitUntil([&] { return !(Written("watch.out") + Written("watch.err")).empty(); }, kPatience));
  const std::vector<ProcessInfo> children = DescendantsOf(watch->pid(), ListProcesses());
  const std::vector<ProcessInfo> sessions = sshd_->Sessions();
  ASSERT_FALSE(children.empty());
  ASSERT_FALSE(sessions.empty());
  watch->Signal(SIGKILL);
  for (const std::vector<ProcessInfo>& processes : {children, sessions}) {
    for (const ProcessInfo& process : processes) {
      EXPECT_TRUE(
          WaitUntil([&] { return !IsProcessAlive(process.pid, process.start_ticks); }, kPatience));
    }
  }
}

TEST_F(SshTest, AClientThatIsKilledWhileSshConnectsLeavesNothingBehind) {
  // This host says nothing.
  sshd_->Configure(absl::StrCat("Host silent\n  ProxyCommand /bin/sh -c 'echo > ",
                                sshd_->dir().File("connecting"),
                                "; exec 3>&1; exec cat > /dev/null'"));
  Process::Options options = Client("ssh://silent", {"ls"});
  const auto client = Process::Start(std::move(options));
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(WaitUntil([&] { return FileExists(sshd_->dir().File("connecting")); }, kPatience));
  std::vector<ProcessInfo> children;
  ASSERT_TRUE(WaitUntil(
      [&] {
        children = DescendantsOf((*client)->pid(), ListProcesses());
        return !children.empty();
      },
      kPatience))
      << (*client)->Err();
  (*client)->Signal(SIGKILL);
  for (const ProcessInfo& process : children) {
    EXPECT_TRUE(
        WaitUntil([&] { return !IsProcessAlive(process.pid, process.start_ticks); }, kPatience));
  }
}

TEST_F(SshTest, AHostKeyCanBeAcceptedOnTheTerminal) {
  yard_.StartServer();
  sshd_->Configure("Host *\n  BatchMode no\n  UserKnownHostsFile " + sshd_->dir().File("accepted"));
  // ssh asks on the terminal of the client, where a person answers.
  const std::string script = sshd_->dir().Write("person.py", R"(
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen = b''
answered = False
while True:
    try:
        got = os.read(terminal, 4096)
    except OSError:
        break
    if not got:
        break
    seen += got
    if not answered and b'(yes/no' in seen:
        os.write(terminal, b'yes\n')
        answered = True
print(seen.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if answered else 99)
)");
  Process::Options options = Client(Address(), {"ls"});
  options.args.insert(options.args.begin(), {"/usr/bin/python3", script});
  const auto result = RunProcess(std::move(options), sshd_->dir().path(), kPatience);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0) << result->out << result->err;
  EXPECT_THAT(Written("accepted"), HasSubstr("ssh-ed25519"));
}

// Tests what the server's host sees of the account.
class SshAccountTest : public SshTest {
 protected:
  // Accepts one connection from an account at a socket that is open to all, and returns its uid.
  uid_t UidOf(const std::string& account) {
    const std::string path = sshd_->dir().File("listener.sock");
    const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    EXPECT_EQ(chmod(path.c_str(), 0666), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    const auto client = Process::Start(Client(sshd_->Address(account, path), {"ls"}));
    EXPECT_TRUE(client.ok()) << client.status();
    const UniqueFd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ucred credentials{};
    socklen_t length = sizeof(credentials);
    EXPECT_EQ(getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length), 0);
    return credentials.uid;
  }
};

TEST_F(SshAccountTest, TheServerSeesTheUserOfTheAccount) {
  EXPECT_EQ(UidOf(sshd_->account()), geteuid());
}

TEST_F(SshAccountTest, TheServerSeesAnotherUserForAnotherAccount) {
  if (!sshd_->has_nobody()) GTEST_SKIP() << "only root can run an sshd for other accounts";
  EXPECT_EQ(UidOf("nobody"), 65534u);
}

TEST_F(SshAccountTest, ASocketThatIsClosedToTheAccountIsNotAllowed) {
  if (!sshd_->has_nobody()) GTEST_SKIP() << "only root can run an sshd for other accounts";
  yard_.StartServer();
  const ProcessResult result = Run(sshd_->Address("nobody", Socket()), {"ls"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, AllOf(HasSubstr("on '127.0.0.1': you are not allowed to use the server"),
                                HasSubstr("ask its owner")));
}

}  // namespace
}  // namespace trainyard::testing
