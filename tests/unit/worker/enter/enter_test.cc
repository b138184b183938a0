// Tests what the worker daemon and trainyard-enter tell each other, and what is read of a process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/processes.h"
#include "worker/enter/command_line.h"
#include "worker/enter/entering.h"
#include "worker/enter/protocol.h"
#include "worker/enter/target.h"

namespace trainyard::enter {
namespace {

TEST(EnterProtocol, MessagesComeBackAsTheyWere) {
  const auto ended = ParseMessage(MessageText(Ended{7, 0}));
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(std::get<Ended>(*ended).code, 7);
  const auto failed = ParseMessage(MessageText(Failed{"CANNOT_ENTER", "no way in"}));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(std::get<Failed>(*failed).reason, "CANNOT_ENTER");
  EXPECT_EQ(std::get<Failed>(*failed).message, "no way in");
  EXPECT_EQ(std::get<Signal>(*ParseMessage(MessageText(Signal{15}))).number, 15);
  EXPECT_TRUE(std::holds_alternative<Opened>(*ParseMessage("opened")));
}

TEST(EnterProtocol, OtherTextsAreRefused) {
  for (const char* text :
       {"", "open", "opened now", "exit", "exit 1", "exit 256 0", "exit -1 0", "exit 0 65",
        "exit 0 0 0", "signal 0", "signal 65", "signal x", "fail", "fail REASON", "signal 9 9"}) {
    EXPECT_FALSE(ParseMessage(text).ok()) << text;
  }
}

TEST(EnterProtocol, ADescriptorTravelsAlong) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd one(ends[0]);
  const UniqueFd other(ends[1]);
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const UniqueFd reader(pipe_ends[0]);
  EXPECT_FALSE(ReceiveMessage(other.get())->has_value()) << "nothing was sent yet";
  SendMessage(one.get(), Opened{UniqueFd(pipe_ends[1])});
  auto message = ReceiveMessage(other.get());
  ASSERT_TRUE(message.ok() && message->has_value());
  const auto& opened = std::get<Opened>(**message);
  ASSERT_EQ(write(opened.descriptor.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(reader.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  one = UniqueFd();
  EXPECT_FALSE(ReceiveMessage(other.get()).ok()) << "the other end has gone";
}

TEST(EnterCommandLine, RequestsComeBackAsTheyWere) {
  Request request;
  request.rank = {12, 3456, 1000};
  request.owner = Owner{1000, 100, {100, 27}};
  request.terminal = TerminalSize{80, 24};
  request.term = "xterm";
  request.words = {"sh", "-c", "--", "--port"};
  const auto read = ParseArguments(ArgumentsOf(request));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rank.pid, 12);
  EXPECT_EQ(read->rank.start_ticks, 3456);
  EXPECT_EQ(read->rank.uid, 1000U);
  EXPECT_EQ(read->owner->groups, (std::vector<gid_t>{100, 27}));
  EXPECT_EQ(read->terminal->columns, 80);
  EXPECT_EQ(read->term, "xterm");
  EXPECT_EQ(read->words, request.words);
  EXPECT_EQ(read->port, 0);
}

TEST(EnterCommandLine, OtherArgumentsAreRefused) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"--rank"},
      {"--rank", "12"},
      {"--rank", "12:x:0"},
      {"--rank", "-1:1:0"},
      {"--rank", "1:1:0", "--port", "0"},
      {"--rank", "1:1:0", "--port", "65536"},
      {"--rank", "1:1:0", "--terminal", "80"},
      {"--rank", "1:1:0", "--terminal", "80x99999"},
      {"--rank", "1:1:0", "--owner", "1"},
      {"--rank", "1:1:0", "--other", "1"}};
  for (const auto& arguments : wrong) EXPECT_FALSE(ParseArguments(arguments).ok());
}

TEST(EnterTarget, AProcessOfTheOwnerIsTaken) {
  const auto self = ReadProcess(getpid());
  ASSERT_TRUE(self.ok());
  const auto target = FindTarget({getpid(), self->start_ticks, geteuid()});
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->namespaces, 0);
  EXPECT_EQ(target->cgroup, "");
  EXPECT_FALSE(target->environment.empty());
}

TEST(EnterTarget, AProcessOfAnybodyElseIsNot) {
  const auto self = ReadProcess(getpid());
  ASSERT_TRUE(self.ok());
  EXPECT_TRUE(
      absl::IsPermissionDenied(FindTarget({getpid(), self->start_ticks, geteuid() + 1}).status()));
  EXPECT_TRUE(absl::IsNotFound(FindTarget({getpid(), self->start_ticks + 1, geteuid()}).status()))
      << "the number belongs to another process now";
}

TEST(EnterTarget, TheControlGroupOfVersionTwoIsRead) {
  const std::string group = "/system.slice/trainyard-jobs.service/trainyard-w1-12-1/rank-0";
  EXPECT_EQ(AttemptGroupPath(absl::StrCat("4:memory:/x\n0::", group, "\n")), group);
  EXPECT_EQ(AttemptGroupPath("0::/system.slice/trainyard-worker.service\n"), "");
  EXPECT_EQ(AttemptGroupPath("0::/user.slice/session-3.scope\n"), "");
  EXPECT_EQ(AttemptGroupPath("4:memory:/trainyard-w1-12-1\n"), "");
  EXPECT_EQ(AttemptGroupPath(""), "");
}

TEST(EnterPort, APortThatNobodyListensOnIsTold) {
  const auto connection = ConnectToPort(1);
  EXPECT_TRUE(absl::IsUnavailable(connection.status())) << connection.status();
}

}  // namespace
}  // namespace trainyard::enter
