#include "server/runtime/connections.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/system_accounts.h"
#include "server/runtime/local_process.h"
#include "tests/testing/manual_clock.h"

namespace trainyard::runtime {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    server = UniqueFd(ends[0]);
    client = UniqueFd(ends[1]);
  }
  bool IsEnded() const {
    char byte = 0;
    return recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  UniqueFd server;
  UniqueFd client;
};

access::Peer User(const std::string& name) {
  access::Peer peer;
  peer.user = name;
  return peer;
}

class ConnectionsTest : public ::testing::Test {
 protected:
  std::string UserOf(const Pair& pair) {
    const auto peer = connections_.Find(absl::StrCat("fd:", pair.server.get()));
    return peer == nullptr ? "" : peer->user;
  }

  testing::ManualClock clock_;
  Connections connections_{clock_};
};

TEST_F(ConnectionsTest, ACallIsKnownByTheDescriptorOfItsConnection) {
  const Pair anna;
  const Pair bert;
  connections_.Add(anna.server.get(), User("anna"));
  connections_.Add(bert.server.get(), User("bert"));
  EXPECT_EQ(UserOf(anna), "anna");
  EXPECT_EQ(UserOf(bert), "bert");
  for (const char* other : {"inproc", "fd:", "fd:x", "fd:99999", "ipv4:127.0.0.1:80", ""}) {
    EXPECT_EQ(connections_.Find(other), nullptr) << other;
  }
}

TEST_F(ConnectionsTest, ADescriptorThatBecomesAnotherConnectionIsThatOfItsNewOwner) {
  Pair anna;
  const int number = anna.server.get();
  connections_.Add(number, User("anna"));
  const Pair bert;
  ASSERT_EQ(dup2(bert.server.get(), number), number);
  connections_.Add(number, User("bert"));
  EXPECT_EQ(UserOf(anna), "bert");
  EXPECT_EQ(connections_.size(), 1U);
}

TEST_F(ConnectionsTest, ConnectionsThatNeverCallAreEnded) {
  const Pair silent;
  const Pair busy;
  connections_.Add(silent.server.get(), User("mallory"));
  connections_.Add(busy.server.get(), User("anna"));
  EXPECT_EQ(UserOf(busy), "anna");  // a call
  clock_.Advance(Connections::kSilentMax + absl::Seconds(1));
  connections_.Sweep();
  EXPECT_TRUE(silent.IsEnded());
  EXPECT_FALSE(busy.IsEnded());
}

TEST_F(ConnectionsTest, CallsOfStrangersDoNotKeepAConnectionOpen) {
  access::Peer remote;
  remote.address = "203.0.113.7";
  const Pair stranger;
  const Pair anna;
  connections_.Add(stranger.server.get(), remote);
  const auto is_known = std::make_shared<std::atomic<bool>>(false);
  connections_.Add(anna.server.get(), remote, is_known);
  EXPECT_EQ(UserOf(stranger), "");  // a call without a token
  EXPECT_EQ(UserOf(anna), "");
  EXPECT_FALSE(*is_known);
  connections_.NoteSignIn(absl::StrCat("fd:", anna.server.get()));
  connections_.NoteSignIn("fd:99999");
  EXPECT_TRUE(*is_known);
  clock_.Advance(Connections::kSilentMax + absl::Seconds(1));
  connections_.Sweep();
  EXPECT_TRUE(stranger.IsEnded());
  EXPECT_FALSE(anna.IsEnded());
}

TEST_F(ConnectionsTest, AllCanBeEndedAndNothingElseIs) {
  Pair first;
  const Pair second;
  connections_.Add(first.server.get(), User("anna"));
  connections_.Add(second.server.get(), User("anna"));
  // The first connection is closed, and its descriptor becomes another socket.
  const Pair other;
  ASSERT_EQ(dup2(other.server.get(), first.server.get()), first.server.get());
  connections_.EndAll();
  EXPECT_TRUE(second.IsEnded());
  EXPECT_FALSE(other.IsEnded());
  connections_.Sweep();
  EXPECT_EQ(connections_.size(), 1U) << "the first one is forgotten";
}

TEST(LocalProcesses, TheKernelSaysWhoIsAtTheOtherEnd) {
  const Pair pair;
  LocalProcesses processes(*Clock::Real());
  const auto process = processes.AtOtherEnd(pair.server.get());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(process->uid, geteuid());
  EXPECT_EQ(process->user, UserName(geteuid()));
  EXPECT_EQ(process->groups.back(), getegid());
  EXPECT_FALSE(processes.AtOtherEnd(-1).ok());
}

}  // namespace
}  // namespace trainyard::runtime
