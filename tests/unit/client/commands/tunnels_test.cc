// Tests exec and port-forward against the fake server. They use the descriptors of their process,
// so each runs in one of its own.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/wait.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TunnelVerbs : public ::testing::Test {
 protected:
  TunnelVerbs() { server_.AddJob("running", v1::JOB_STATE_RUNNING); }

  // The options of `trainyard ARGS`.
  Process::Options Client(std::vector<std::string> args) const {
    args.insert(args.begin(), {BinaryPath("trainyard"), "--server", server_.address()});
    Process::Options options;
    options.args = std::move(args);
    options.environment = {{"HOME", dir_.path()}};
    return options;
  }
  ProcessResult Exec(const std::vector<std::string>& args, const std::string& input = "") {
    Process::Options options = Client(args);
    if (!input.empty()) options.stdin_path = dir_.Write("input", input);
    const auto result = RunProcess(std::move(options), dir_.path(), absl::Seconds(60));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(ProcessResult());
  }

  TempDir dir_;
  FakeServer server_;
};

// Returns a socket that is bound to a port of the loopback, 0 for a free one, or connected to it.
UniqueFd LoopbackSocket(int port, bool is_bound, int* chosen = nullptr) {
  UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (is_bound) {
    EXPECT_EQ(bind(socket_fd.get(), generic, size), 0);
    EXPECT_EQ(listen(socket_fd.get(), 1), 0);
    EXPECT_EQ(getsockname(socket_fd.get(), generic, &size), 0);
    *chosen = ntohs(address.sin_port);
  } else {
    EXPECT_EQ(connect(socket_fd.get(), generic, size), 0);
  }
  return socket_fd;
}

TEST_F(TunnelVerbs, ACommandGetsItsInputAndGivesOutputErrorsAndCode) {
  const ProcessResult result = Exec({"exec", "1", "--rank", "3", "--", "cat", "-n"}, "typed\n");
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_EQ(result.out, "cat -n\ntyped\n");
  EXPECT_EQ(result.err, "an error\n");
  const v1::TunnelOpen open = server_.last_tunnel();
  EXPECT_EQ(open.job(), "jobs/1");
  EXPECT_EQ(open.rank(), 3);
  EXPECT_THAT(open.command().words(), ElementsAre("cat", "-n"));
  EXPECT_FALSE(open.command().has_terminal()) << "stdin is none";
  EXPECT_EQ(Exec({"exec", "1", "--", "kill"}).exit_code, 128 + SIGKILL);
}

TEST_F(TunnelVerbs, ATerminalCanBeAskedFor) {
  EXPECT_EQ(Exec({"exec", "-t", "1"}).exit_code, 7);
  const v1::TunnelOpen open = server_.last_tunnel();
  EXPECT_TRUE(open.command().has_terminal());
  EXPECT_GT(open.command().terminal().columns(), 0);
  EXPECT_THAT(open.command().words(), ElementsAre()) << "the worker chooses a shell";
}

TEST_F(TunnelVerbs, CommandsThatCannotRunEndWithTheReason) {
  const ProcessResult missing = Exec({"exec", "1", "--", "missing"});
  EXPECT_EQ(missing.exit_code, 127) << "as in shells";
  EXPECT_THAT(missing.err, HasSubstr("error: cannot execute 'missing'"));
  const ProcessResult unknown = Exec({"exec", "99", "--", "true"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("99"));
  server_.AddJob("ended", v1::JOB_STATE_SUCCEEDED);
  const ProcessResult ended = Exec({"exec", "2", "--", "true"});
  EXPECT_EQ(ended.exit_code, 6);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("jobs/2"), HasSubstr("SUCCEEDED")));
  EXPECT_EQ(Exec({"exec", "1", "--rank", "-1", "--", "true"}).exit_code, 2);
}

TEST_F(TunnelVerbs, APortIsForwardedUntilCtrlC) {
  Process::Options options = Client({"port-forward", "1", "0:8888", "--rank", "2"});
  options.stdout_path = dir_.File("out");
  options.stderr_path = dir_.File("err");
  const auto client = Process::Start(std::move(options));
  ASSERT_TRUE(client.ok()) << client.status();
  const std::string before = "http://127.0.0.1:";
  std::string told;
  ASSERT_TRUE(WaitUntil([&] {
    told = ReadFile(dir_.File("out")).value_or("");
    return told.find("/\n") != std::string::npos;
  })) << (*client)->Err();
  int port = 0;
  ASSERT_EQ(told.find(before), 0U) << told;
  ASSERT_TRUE(
      absl::SimpleAtoi(told.substr(before.size(), told.find("/\n") - before.size()), &port));
  for (const std::string sent : {"hello", "again"}) {
    const UniqueFd connection = LoopbackSocket(port, false);
    ASSERT_TRUE(WriteFully(connection.get(), sent, "the connection").ok());
    ASSERT_EQ(shutdown(connection.get(), SHUT_WR), 0);
    std::string got;
    char block[64];
    for (ssize_t count = 0; (count = read(connection.get(), block, sizeof block)) > 0;) {
      got.append(block, static_cast<size_t>(count));
    }
    EXPECT_EQ(got, sent);
  }
  EXPECT_EQ(server_.last_tunnel().port(), 8888);
  EXPECT_EQ(server_.last_tunnel().rank(), 2);
  (*client)->Signal(SIGINT);
  const auto ended = (*client)->Wait(absl::Seconds(60));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->exit_code, 130);
  EXPECT_THAT(ended->err, HasSubstr("port 8888 of rank 2 of jobs/1 is here; Ctrl-C ends this"));
}

TEST_F(TunnelVerbs, PortsThatCannotBeForwardedAreRefused) {
  CommandRunner runner(server_.address());
  for (const char* text : {"http", "0", "65536", "1:2:3", "-1:80", ":80"}) {
    const CommandResult wrong = runner.Run({"port-forward", "1", "--", text});
    EXPECT_EQ(wrong.exit_code, 2) << text;
    EXPECT_THAT(wrong.err, HasSubstr("is no port; expected PORT or LOCAL:PORT")) << text;
  }
  int taken = 0;
  const UniqueFd holder = LoopbackSocket(0, true, &taken);
  const CommandResult in_use = runner.Run({"port-forward", "1", absl::StrCat(taken, ":8888")});
  EXPECT_EQ(in_use.exit_code, 6);
  EXPECT_THAT(in_use.err, HasSubstr("choose another port, such as 0:8888"));
  EXPECT_EQ(runner.Run({"port-forward", "99", "8888"}).exit_code, 3);
  server_.AddJob("ended", v1::JOB_STATE_SUCCEEDED);
  const CommandResult ended = runner.Run({"port-forward", "2", "8888"});
  EXPECT_EQ(ended.exit_code, 6);
  EXPECT_THAT(ended.err, HasSubstr("jobs/2 is SUCCEEDED; its ports can be reached while it runs"));
}

}  // namespace
}  // namespace trainyard::testing
