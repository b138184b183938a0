// Tests the ways into a running job: commands beside its program, and connections to its ports.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/shared_yard.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs until it is stopped.
std::string WaitingSpec(int devices, const std::string& command = "echo ready; exec sleep 1000") {
  return absl::StrCat("name: waiting\ndevices: ", devices,
                      "\nprogram:\n  env: {GREETING: hello}\n  script: |\n    #!/bin/sh\n    ",
                      command, "\n");
}

class Tunnels : public ::testing::Test {
 protected:
  void SetUp() override { yard_.Start(); }

  // Submits a job, and waits until its ranks have printed a line.
  std::string Begin(const std::string& spec, int ranks = 1) {
    const std::string job = yard_.Submit(spec);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(WaitUntil([&] { return !LogOf(rank).empty(); })) << yard_.Cli({"show", "1"}).out;
    }
    return job;
  }
  std::string LogOf(int rank) {
    return yard_.Cli({"logs", "last", "--rank", absl::StrCat(rank)}).out;
  }

  Process::Options Client(const std::vector<std::string>& args) {
    Process::Options options;
    options.args = {Yard::Binary("trainyard"), "--server", yard_.address()};
    options.args.insert(options.args.end(), args.begin(), args.end());
    options.stdout_path = yard_.File("client.out");
    options.stderr_path = yard_.File("client.err");
    return options;
  }

  Yard yard_;
};

TEST_F(Tunnels, ACommandRunsBesideTheProgram) {
  Begin(WaitingSpec(1));
  const ProcessResult result = yard_.Cli(
      {"exec", "1", "--", "sh", "-c", "echo $GREETING $TRAINYARD_JOB; pwd; echo bad >&2; exit 7"});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("hello jobs/1\n"), HasSubstr("/ranks/0/program/work\n")));
  EXPECT_EQ(result.err, "bad\n") << "stdout and stderr are kept apart";

  EXPECT_EQ(yard_.Cli({"exec", "1", "--", "sh", "-c", "kill -TERM $$"}).exit_code, 128 + SIGTERM);
  const ProcessResult missing = yard_.Cli({"exec", "1", "--", "no-such-program"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("cannot execute 'no-such-program'"));
  const ProcessResult rank = yard_.Cli({"exec", "1", "--rank", "5", "--", "true"});
  EXPECT_THAT(rank.err, AllOf(HasSubstr("has no rank 5"), HasSubstr("rank 0 alone")));
  EXPECT_THAT(yard_.Cli({"audit"}).out, HasSubstr("exec: sh -c kill -TERM"));
}

TEST_F(Tunnels, BytesComeBackAsTheyWere) {
  Begin(WaitingSpec(1));
  std::string bytes;
  uint32_t state = 1;
  while (bytes.size() < (size_t{6} << 20)) {
    state = state * 1664525 + 1013904223;
    bytes += static_cast<char>(state >> 24);
  }
  ASSERT_TRUE(ReplaceFile(yard_.File("bytes"), bytes).ok());
  Process::Options options = Client({"exec", "1", "--", "cat"});
  options.stdin_path = yard_.File("bytes");
  auto client = Process::Start(options);
  ASSERT_TRUE(client.ok());
  const auto result = (*client)->Wait(kPatience);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_code, 0) << result->err;
  EXPECT_EQ(result->out.size(), bytes.size());
  EXPECT_TRUE(result->out == bytes);
}

TEST_F(Tunnels, ATerminalHasASizeAndTakesKeys) {
  Begin(WaitingSpec(1));
  const winsize first{33, 101, 0, 0};
  int screen = -1;
  Process::Options options = Client({"exec", "1", "--", "sh"});
  std::vector<char*> argv;
  for (std::string& arg : options.args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t child = forkpty(&screen, nullptr, nullptr, &first);
  ASSERT_GE(child, 0);
  if (child == 0) {
    execv(argv[0], argv.data());
    _exit(126);
  }
  std::string shown;
  const auto shows = [&](const std::string& text) {
    return WaitUntil([&] {
      pollfd look{screen, POLLIN, 0};
      char buffer[4096];
      if (poll(&look, 1, 50) > 0) {
        const ssize_t got = read(screen, buffer, sizeof buffer);
        if (got > 0) shown.append(buffer, static_cast<size_t>(got));
      }
      return absl::StrContains(shown, text);
    });
  };
  const auto type = [&](const std::string& text) {
    ASSERT_EQ(write(screen, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  type("tty -s && stty size\n");
  EXPECT_TRUE(shows("33 101")) << shown;
  const winsize second{44, 122, 0, 0};
  ASSERT_EQ(ioctl(screen, TIOCSWINSZ, &second), 0);
  type("while ! stty size | grep '44 12.'; do :; done\n");
  EXPECT_TRUE(shows("44 122")) << shown;
  // Ctrl-C ends what runs there, and not the client.
  type("PS1='next>'; echo slee''ps; sleep 1000\n");
  EXPECT_TRUE(shows("sleeps")) << shown;
  type("\x03");
  EXPECT_TRUE(shows("^C") && WaitUntil([&] { return shows("") && absl::EndsWith(shown, "next>"); }))
      << shown;
  type("echo interr''upted; exit 5\n");
  EXPECT_TRUE(shows("interrupted")) << shown;
  int status = 0;
  EXPECT_TRUE(WaitUntil([&] { return shows("") && waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_EQ(WEXITSTATUS(status), 5);
  close(screen);
}

TEST_F(Tunnels, EachRankHasItsOwn) {
  Begin(WaitingSpec(2), 2);
  for (const char* const rank : {"0", "1"}) {
    EXPECT_EQ(yard_.Cli({"exec", "1", "--rank", rank, "--", "printenv", "RANK"}).out,
              absl::StrCat(rank, "\n"));
  }
}

TEST_F(Tunnels, ACommandEndsWithItsJob) {
  Begin(WaitingSpec(1));
  auto client = Process::Start(Client({"exec", "1", "--", "sh", "-c", "echo here; sleep 1000"}));
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(WaitUntil([&] {
    const auto text = ReadFile(yard_.File("client.out"));
    return text.ok() && *text == "here\n";
  }));
  EXPECT_EQ(yard_.Cli({"cancel", "1"}).exit_code, 0);
  const auto result = (*client)->Wait(kPatience);
  ASSERT_TRUE(result.ok());
  EXPECT_NE(result->exit_code, 0);
  EXPECT_THAT(result->err, HasSubstr("the rank has ended"));
  yard_.WaitForEnd("jobs/1");
  EXPECT_THAT(yard_.Cli({"exec", "1", "--", "true"}).err, HasSubstr("nothing of jobs/1 runs"));
}

// Returns a connection to a port of this host.
UniqueFd ConnectTo(int port) {
  UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return connection;
}

std::string ReadAll(int connection) {
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = read(connection, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// Starts to forward a port of the rank, and returns the port here.
int PortOf(const std::string& path) {
  std::string text;
  EXPECT_TRUE(WaitUntil([&] {
    const auto read = ReadFile(path);
    if (read.ok()) text = *read;
    return absl::StrContains(text, "/\n");
  }));
  int port = 0;
  const size_t colon = text.rfind(':');
  EXPECT_TRUE(absl::SimpleAtoi(text.substr(colon + 1, text.rfind('/') - colon - 1), &port)) << text;
  return port;
}

TEST_F(Tunnels, ManyConnectionsReachAPortAtOnce) {
  Begin(WaitingSpec(1,
                    "exec python3 -u -c 'import http.server as h; s = "
                    "h.ThreadingHTTPServer((\"127.0.0.1\", 0), h.SimpleHTTPRequestHandler); "
                    "print(s.server_port); s.serve_forever()'"));
  const std::string there(absl::StripAsciiWhitespace(LogOf(0)));
  auto client = Process::Start(Client({"port-forward", "1", absl::StrCat("0:", there)}));
  ASSERT_TRUE(client.ok());
  const int port = PortOf(yard_.File("client.out"));
  constexpr int kConnections = 50;
  std::vector<UniqueFd> connections;
  for (int i = 0; i < kConnections; ++i) connections.push_back(ConnectTo(port));
  const std::string request = "GET / HTTP/1.0\r\n\r\n";
  for (const UniqueFd& connection : connections) {
    ASSERT_GT(write(connection.get(), request.data(), request.size()), 0);
  }
  for (const UniqueFd& connection : connections) {
    EXPECT_THAT(ReadAll(connection.get()), HasSubstr("200 OK"));
  }
  (*client)->Signal(SIGINT);
  const auto result = (*client)->Wait(kPatience);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_code, 130);
}

TEST_F(Tunnels, APortThatNobodyListensOnIsTold) {
  Begin(WaitingSpec(1));
  auto client = Process::Start(Client({"port-forward", "1", "0:1"}));
  ASSERT_TRUE(client.ok());
  const UniqueFd connection = ConnectTo(PortOf(yard_.File("client.out")));
  EXPECT_EQ(ReadAll(connection.get()), "");
  EXPECT_TRUE(WaitUntil([&] {
    return absl::StrContains((*client)->Err(), "nothing answers on port 1");
  })) << (*client)->Err();
}

TEST_F(Tunnels, AnIdleProgramIsStopped) {
  const std::string job = yard_.Submit("idle_limit: 2 s\n" + WaitingSpec(1));
  const v1::Job ended = yard_.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.failure().reason(), "IDLE_LIMIT");
  EXPECT_THAT(ended.failure().message(), HasSubstr("the program was idle for 2"));
  EXPECT_EQ(ended.attempt(), 1) << "the same would happen again";
}

TEST(TunnelsOfOthers, OnlyTheOwnerMayEnter) {
  SharedYard host;
  if (const std::string why = host.WhyNot(); !why.empty()) GTEST_SKIP() << why;
  host.Start();
  host.yard().StartWorker();
  host.yard().WaitForWorkers(1);
  host.yard().Submit(WaitingSpec(1));
  ASSERT_TRUE(host.yard().WaitForJob(
      "jobs/1", [](const v1::Job& job) { return job.state() == v1::JOB_STATE_RUNNING; }));
  const ProcessResult refused = host.As(kNobody, {"exec", "1", "--", "id"});
  EXPECT_EQ(refused.exit_code, 5) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("only its owner and administrators may enter it"));
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(host.yard().Cli({"audit"}).out, HasSubstr("exec: id"));
}

}  // namespace
}  // namespace trainyard::testing
