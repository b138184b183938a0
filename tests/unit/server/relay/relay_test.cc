// A relay whose clients are users of this host. tests/unit/server/tls has the tests of what
// connections of both kinds have in common: slow readers, ends, and many bytes.
#include "server/relay/relay.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/relay/plain_side.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/wait.h"

namespace trainyard::relay {
namespace {

using testing::WaitUntil;

const std::string kHello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// A call of two bytes of headers.
std::string ShortCall(unsigned char stream) {
  return std::string("\0\0\2\1\5\0\0\0", 8) + static_cast<char>(stream) + "xx";
}
// A call whose headers go on.
std::string EndlessCall() {
  return std::string("\0\x3e\x80\1\0\0\0\0\1", 9) + std::string(16'000, 'x');
}

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    (void)signal(SIGPIPE, SIG_IGN);  // as the server does
  }
  void Start(const Limits& limits = {}) {
    relay_.emplace(
        clock_,
        [this](Relay::Opened opened) {
          const MutexLock lock(&mutex_);
          opened_.push_back(std::move(opened));
        },
        limits);
  }
  // Returns the client's end of a new connection. Its reads give up after a while.
  UniqueFd Connect(const std::string& user) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const timeval patience = {30, 0};
    EXPECT_EQ(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    access::Peer peer;
    peer.user = user;
    relay_->Take(std::make_unique<PlainSide>(UniqueFd(ends[1]), std::move(peer)));
    return UniqueFd(ends[0]);
  }
  // Connects, and says that gRPC is to follow.
  UniqueFd Greet(const std::string& user) {
    UniqueFd client = Connect(user);
    Send(client, kHello);  // this fails if the relay has ended the connection
    return client;
  }
  // Returns how many bytes gRPC has been given on all connections.
  size_t Received() {
    const MutexLock lock(&mutex_);
    char bytes[4096];
    for (const Relay::Opened& opened : opened_) {
      ssize_t got = 0;
      while ((got = recv(opened.plain.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
        received_ += static_cast<size_t>(got);
      }
    }
    return received_;
  }
  bool WaitForOpened(size_t count) {
    return WaitUntil([&] {
      const MutexLock lock(&mutex_);
      return opened_.size() == count;
    });
  }
  bool WaitForConnections(size_t count) {
    return WaitUntil([&] { return relay_->counts().connections == count; });
  }
  static bool Send(const UniqueFd& client, const std::string& bytes) {
    return send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Returns true if the server ends the connection.
  static bool IsEnded(const UniqueFd& client) {
    char byte = 0;
    const ssize_t got = recv(client.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  testing::ManualClock clock_;
  Mutex mutex_;
  std::vector<Relay::Opened> opened_ ABSL_GUARDED_BY(mutex_);
  size_t received_ = 0;
  std::optional<Relay> relay_;
};

TEST_F(RelayTest, AUserIsKnownFromTheStartAndBytesPassBothWays) {
  Start();
  const UniqueFd client = Greet("anna");
  ASSERT_TRUE(WaitForOpened(1));
  const MutexLock lock(&mutex_);
  EXPECT_EQ(opened_[0].peer.user, "anna");
  EXPECT_TRUE(*opened_[0].is_known);
  EXPECT_EQ(opened_[0].protocol, Protocol::kHttp2);
  std::string passed(kHello.size(), '\0');
  size_t size = 0;
  EXPECT_TRUE(WaitUntil([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const ssize_t got = recv(opened_[0].plain.get(), &passed[size], passed.size() - size, 0);
    if (got > 0) size += static_cast<size_t>(got);
    return size == passed.size();
  }));
  EXPECT_EQ(passed, kHello);
  ASSERT_EQ(write(opened_[0].plain.get(), "answer", 6), 6);
  char answer[6];
  EXPECT_EQ(recv(client.get(), answer, sizeof(answer), MSG_WAITALL), 6);
  EXPECT_EQ(std::string(answer, 6), "answer");
}

TEST_F(RelayTest, TheFirstBytesTellTheProtocol) {
  Start();
  const UniqueFd http1 = Connect("anna");
  ASSERT_TRUE(Send(http1, "P"));
  const UniqueFd http2 = Connect("anna");
  ASSERT_TRUE(Send(http2, "PRI"));
  const UniqueFd get = Connect("anna");
  ASSERT_TRUE(Send(get, "G"));
  ASSERT_TRUE(WaitForOpened(1)) << "only this one cannot become another";
  ASSERT_TRUE(Send(http1, "OST / HTTP/1.1"));
  ASSERT_TRUE(WaitForOpened(2));
  ASSERT_TRUE(Send(http2, kHello.substr(3)));
  ASSERT_TRUE(WaitForOpened(3));
  const MutexLock lock(&mutex_);
  EXPECT_EQ(opened_[0].protocol, Protocol::kHttp1);
  EXPECT_EQ(opened_[1].protocol, Protocol::kHttp1);
  EXPECT_EQ(opened_[2].protocol, Protocol::kHttp2);
}

TEST_F(RelayTest, TheHostsOwnConnectionsAreHandedOnAsTheyAre) {
  Start();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  access::Peer peer;
  peer.user = "root";
  peer.is_host = true;
  relay_->Take(std::make_unique<PlainSide>(UniqueFd(ends[1]), std::move(peer)));
  const UniqueFd client(ends[0]);
  ASSERT_TRUE(Send(client, kHello));
  ASSERT_TRUE(WaitForOpened(1));
  EXPECT_TRUE(WaitForConnections(0)) << "the relay has let it go";
  const MutexLock lock(&mutex_);
  EXPECT_EQ(opened_[0].plain.get(), ends[1]);
  std::string passed(kHello.size(), '\0');
  EXPECT_EQ(recv(ends[1], passed.data(), passed.size(), MSG_WAITALL),
            static_cast<ssize_t>(kHello.size()));
  EXPECT_EQ(passed, kHello) << "no byte was taken";
}

TEST_F(RelayTest, HeadersWithoutEndEndTheConnection) {
  Start();
  const UniqueFd client = Connect("mallory");
  ASSERT_TRUE(Send(client, kHello + EndlessCall()));
  const std::string more = std::string("\0\x3e\x80\x09\0\0\0\0\1", 9) + std::string(16'000, 'x');
  for (int i = 0; i < 4; ++i) Send(client, more);
  EXPECT_TRUE(IsEnded(client));
  EXPECT_TRUE(WaitForConnections(0));
}

TEST_F(RelayTest, AUsersCallsAreCountedInAllConnectionsAndOthersHaveTheirOwn) {
  Start({.calls_of_client = 4});
  const std::string two = kHello + ShortCall(1) + ShortCall(3);
  const UniqueFd first = Connect("mallory");
  const UniqueFd second = Connect("mallory");
  ASSERT_TRUE(Send(first, two));
  ASSERT_TRUE(Send(second, two));
  EXPECT_TRUE(WaitUntil([&] { return Received() == 2 * two.size(); }));
  ASSERT_TRUE(Send(second, ShortCall(5)));
  EXPECT_TRUE(IsEnded(second));
  const UniqueFd other = Connect("anna");
  ASSERT_TRUE(Send(other, two));
  EXPECT_TRUE(WaitUntil([&] { return Received() == 3 * two.size(); })) << "anna has her own";
  // The calls of the connection that has ended are forgotten after a while.
  clock_.Advance(absl::Seconds(1));
  const UniqueFd third = Connect("mallory");
  ASSERT_TRUE(Send(third, two));
  EXPECT_TRUE(WaitUntil([&] { return Received() == 4 * two.size(); }));
}

TEST_F(RelayTest, WhoeverComesBackFindsItsCallsCounted) {
  Start({.calls_of_client = 2});
  {
    const UniqueFd client = Connect("mallory");
    ASSERT_TRUE(Send(client, kHello + ShortCall(1) + ShortCall(3)));
    EXPECT_TRUE(WaitUntil([&] { return Received() == kHello.size() + 2 * ShortCall(1).size(); }));
    ASSERT_TRUE(Send(client, ShortCall(5)));
    EXPECT_TRUE(IsEnded(client));
  }
  EXPECT_TRUE(WaitForConnections(0));
  const UniqueFd next = Connect("mallory");
  ASSERT_TRUE(Send(next, kHello + ShortCall(1)));
  EXPECT_TRUE(IsEnded(next));
}

TEST_F(RelayTest, AUserHasALimitOfConnectionsAndOthersDoNotFeelIt) {
  Start({.connections_of_client = 3});
  std::vector<UniqueFd> clients;
  for (size_t i = 0; i < 3; ++i) clients.push_back(Greet("mallory"));
  ASSERT_TRUE(WaitForConnections(3));
  EXPECT_TRUE(IsEnded(Greet("mallory")));
  const UniqueFd other = Greet("anna");
  EXPECT_TRUE(WaitForConnections(4));
  // Once one of them has ended, there is room for another.
  {
    const MutexLock lock(&mutex_);
    opened_.clear();  // gRPC closes its ends
  }
  clients.pop_back();
  EXPECT_TRUE(WaitForConnections(3));
  const UniqueFd next = Greet("mallory");
  EXPECT_TRUE(WaitForConnections(4));
}

TEST_F(RelayTest, ConnectionsThatWaitForTheThreadAreBoundedByUser) {
  Start({.handshakes = 100, .handshakes_of_client = 5});
  std::vector<UniqueFd> clients;
  {
    // The thread cannot hand anything on meanwhile.
    const MutexLock lock(&mutex_);
    for (int i = 0; i < 2; ++i) clients.push_back(Greet("mallory"));
    ASSERT_TRUE(WaitUntil([&] { return relay_->counts().connections == 1; }));
    for (int i = 0; i < 50; ++i) clients.push_back(Greet("mallory"));
    clients.push_back(Greet("anna"));
  }
  EXPECT_TRUE(IsEnded(clients[30]));
  EXPECT_TRUE(WaitUntil([&] {
    const MutexLock lock(&mutex_);
    return std::any_of(opened_.begin(), opened_.end(),
                       [](const Relay::Opened& opened) { return opened.peer.user == "anna"; });
  }));
}

}  // namespace
}  // namespace trainyard::relay
