// A relay whose clients come with TLS.
#include "server/tls/tls_side.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/tls/probe.h"
#include "server/relay/relay.h"
#include "server/tls/certificate_files.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/tls/tls_client.h"

namespace trainyard::tls {
namespace {

using ::testing::IsEmpty;
using testing::WaitUntil;

constexpr size_t kPrefaceBytes = 24;
// HTTP/2 begins like this, and goes on with a frame of 16 MiB.
const std::string kOneFrame =
    std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\xff\xff\xff\0\0\0\0\0\1", 9);

// The bytes that a client does not read are fewer than this.
constexpr size_t kBoundedBytes = size_t{64} << 20;

// Writes as gRPC does, until nothing more is taken for a while, and returns the number of bytes. It
// gives up at kBoundedBytes.
size_t WriteUntilFull(int fd) {
  EXPECT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
  const std::string block(65536, 'x');
  size_t sent = 0;
  pollfd writable = {fd, POLLOUT, 0};
  while (sent < kBoundedBytes && poll(&writable, 1, 200) > 0) {
    const ssize_t some = write(fd, block.data(), block.size());
    if (some > 0) sent += static_cast<size_t>(some);
  }
  return sent;
}

class TlsSideTest : public ::testing::Test {
 protected:
  using Opened = relay::Relay::Opened;

  TlsSideTest() {
    (void)signal(SIGPIPE, SIG_IGN);  // as the server does
    auto files = CertificateFiles::Open({.folder = dir_.File("tls")}, clock_);
    EXPECT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  // Stands on what a fixture has set up so far.
  void Start(const relay::Limits& limits = {}) {
    relay_.emplace(
        clock_,
        [this](Opened opened) {
          const MutexLock lock(&mutex_);
          opened_.push_back(std::move(opened));
        },
        limits);
  }
  void Take(UniqueFd socket) {
    relay_->Take(TlsSide::Create(std::move(socket), *files_->context(), clock_.Now()));
  }
  UniqueFd Connect() {
    auto ends = listener_.Connect();
    Take(std::move(ends.server));
    return std::move(ends.client);
  }
  std::optional<Opened> NextOpened() {
    std::optional<Opened> next;
    WaitUntil([&] {
      const MutexLock lock(&mutex_);
      if (opened_.empty()) return false;
      next = std::move(opened_.front());
      opened_.erase(opened_.begin());
      return true;
    });
    EXPECT_TRUE(next.has_value()) << "no connection was opened";
    if (next.has_value()) MakeBlocking(next->plain);
    return next;
  }
  static void MakeBlocking(const UniqueFd& fd) {
    EXPECT_EQ(fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK), 0);
    const timeval patience = {30, 0};
    EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  }
  bool IsRefused(const TlsClient::Options& options) {
    TlsClient client(Connect(), options);
    return !client.Handshake() || client.Read().empty();
  }
  static std::string ReadPlain(const UniqueFd& plain, size_t bytes) {
    std::string all;
    char block[65536];
    while (all.size() < bytes) {
      const ssize_t got = read(plain.get(), block, sizeof(block));
      if (got <= 0) break;
      all.append(block, static_cast<size_t>(got));
    }
    return all;
  }
  bool WaitForCounts(size_t handshakes, size_t connections) {
    return WaitUntil([&] {
      const auto counts = relay_->counts();
      return counts.handshakes == handshakes && counts.connections == connections;
    });
  }
  // A certificate of the server's authority for this worker, made at `now`.
  KeyPair WorkerIdentity(const KeyPair& authority, const std::string& worker, absl::Time now) {
    KeyPair identity;
    identity.key = MakeKey();
    const auto request = MakeWorkerRequest(identity.key, worker);
    EXPECT_TRUE(request.ok()) << request.status();
    const auto made = SignWorkerRequest(authority, *request, worker, now);
    EXPECT_TRUE(made.ok()) << made.status();
    identity.certificate = made.value_or("");
    return identity;
  }
  KeyPair OwnAuthority() {
    return {*ReadFile(dir_.File("tls/authority.key")), *ReadFile(dir_.File("tls/authority.pem"))};
  }

  testing::TempDir dir_;
  testing::ManualClock clock_;
  LoopbackListener listener_;
  std::unique_ptr<CertificateFiles> files_;
  Mutex mutex_;
  std::vector<Opened> opened_ ABSL_GUARDED_BY(mutex_);
  std::optional<relay::Relay> relay_;
};

TEST_F(TlsSideTest, PassesBytesBothWaysAndSaysWhoIsThere) {
  Start();
  TlsClient client(Connect(), {.authority = files_->pin().pem, .now = clock_.Now()});
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->peer.address, "127.0.0.1");
  EXPECT_EQ(opened->peer.worker, "");
  ASSERT_TRUE(client.Write("from the client"));
  EXPECT_EQ(ReadPlain(opened->plain, 15), "from the client");
  ASSERT_EQ(write(opened->plain.get(), "from gRPC", 9), 9);
  EXPECT_EQ(client.Read(9), "from gRPC");
  EXPECT_TRUE(WaitForCounts(0, 1));
}

TEST_F(TlsSideTest, AWorkerIsKnownByItsCertificate) {
  Start();
  const KeyPair identity = WorkerIdentity(OwnAuthority(), "gpu-1", clock_.Now());
  TlsClient client(Connect(), {.identity = identity});
  ASSERT_TRUE(client.Handshake());
  const auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->peer.worker, "gpu-1");
}

TEST_F(TlsSideTest, CertificatesThatAreNotOursOrHaveExpiredAreRefused) {
  Start();
  const KeyPair stranger = MakeAuthority("elsewhere", clock_.Now());
  EXPECT_TRUE(IsRefused({.identity = WorkerIdentity(stranger, "gpu-1", clock_.Now())}));
  const absl::Time long_ago = clock_.Now() - kWorkerLifetime - absl::Hours(1);
  EXPECT_TRUE(IsRefused({.identity = WorkerIdentity(OwnAuthority(), "gpu-1", long_ago)}));
  const absl::Time to_come = clock_.Now() + kBackdated + absl::Hours(1);
  EXPECT_TRUE(IsRefused({.identity = WorkerIdentity(OwnAuthority(), "gpu-1", to_come)}));
  // The certificate of a server is none of a client.
  const auto server = IssueForServer(OwnAuthority(), {"lab"}, clock_.Now());
  EXPECT_TRUE(IsRefused({.identity = *server}));
  // A clock that is an hour off does no harm.
  const KeyPair slow = WorkerIdentity(OwnAuthority(), "gpu-1", clock_.Now() + absl::Hours(1));
  TlsClient client(Connect(), {.identity = slow});
  EXPECT_TRUE(client.Handshake());
  EXPECT_TRUE(NextOpened().has_value());
}

TEST_F(TlsSideTest, AConnectionEndsWithTheCertificateOfItsWorker) {
  Start();
  TlsClient client(Connect(), {.identity = WorkerIdentity(OwnAuthority(), "gpu-1", clock_.Now())});
  ASSERT_TRUE(client.Handshake());
  ASSERT_TRUE(NextOpened().has_value());
  clock_.Advance(kWorkerLifetime);
  EXPECT_TRUE(WaitForCounts(0, 0));
}

TEST_F(TlsSideTest, OldVersionsOtherProtocolsAndPlainTextAreRefused) {
  Start();
  EXPECT_TRUE(IsRefused({.version_min = TLS1_2_VERSION, .version_max = TLS1_2_VERSION}));
  EXPECT_TRUE(IsRefused({.protocol = "\x08http/1.0"}));
  EXPECT_TRUE(IsRefused({.protocol = ""}));
  for (const std::string& text :
       {std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(4096, '\0'),
        std::string("\x16\x03\x01\xff\xff", 5) + std::string(70000, 'a')}) {
    const UniqueFd client = Connect();
    (void)send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
    char block[4096];
    while (recv(client.get(), block, sizeof(block), 0) > 0) {  // an alert of TLS may come
    }
  }
  EXPECT_TRUE(WaitForCounts(0, 0));
  const MutexLock lock(&mutex_);
  EXPECT_THAT(opened_, IsEmpty());
}

TEST_F(TlsSideTest, AHandshakeThatTakesTooLongIsEnded) {
  Start();
  const UniqueFd silent = Connect();
  EXPECT_TRUE(WaitForCounts(1, 0));
  clock_.Advance(absl::Seconds(11));
  char byte = 0;
  EXPECT_EQ(recv(silent.get(), &byte, 1, 0), 0);
  EXPECT_TRUE(WaitForCounts(0, 0));
}

TEST_F(TlsSideTest, TheOldestHandshakeMakesRoomForTheNewest) {
  Start({.handshakes = 100, .handshakes_of_client = 3});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 3; ++i) {
    silent.push_back(Connect());
    ASSERT_TRUE(WaitForCounts(silent.size(), 0));
  }
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  ASSERT_TRUE(NextOpened().has_value());
  char byte = 0;
  EXPECT_EQ(recv(silent[0].get(), &byte, 1, 0), 0) << "the oldest was ended";
  EXPECT_EQ(recv(silent[2].get(), &byte, 1, MSG_DONTWAIT), -1) << "the newest was not";
  EXPECT_TRUE(WaitForCounts(2, 1));
}

TEST_F(TlsSideTest, AnAddressHasALimitOfConnections) {
  Start({.connections = 100, .connections_of_client = 2});
  TlsClient first(Connect());
  TlsClient second(Connect());
  ASSERT_TRUE(first.Handshake());
  ASSERT_TRUE(second.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(NextOpened().has_value());
  EXPECT_TRUE(IsRefused({}));
  opened.reset();  // gRPC closes one of them
  EXPECT_THAT(first.Read(), IsEmpty());
  first.EndWriting();
  second.EndWriting();
  EXPECT_TRUE(WaitForCounts(0, 0)) << "gRPC has closed both";
  TlsClient third(Connect());
  EXPECT_TRUE(third.Handshake());
  EXPECT_TRUE(NextOpened().has_value());
}

TEST_F(TlsSideTest, EachSideMayEndBeforeTheOther) {
  Start();
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  ASSERT_TRUE(client.Write("question"));
  client.EndWriting();
  EXPECT_EQ(ReadPlain(opened->plain, 100), "question") << "the end comes through";
  ASSERT_EQ(write(opened->plain.get(), "answer", 6), 6);
  opened.reset();
  EXPECT_EQ(client.Read(100), "answer") << "and so does what follows it";
  EXPECT_TRUE(WaitForCounts(0, 0));
}

TEST_F(TlsSideTest, AClientThatNeverClosesIsClosedAfterAWhile) {
  Start();
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  opened.reset();
  EXPECT_THAT(client.Read(), IsEmpty());
  clock_.Advance(absl::Seconds(6));
  EXPECT_TRUE(WaitForCounts(0, 0));
}

TEST_F(TlsSideTest, ASlowReaderHoldsUpItsOwnBytesAndNobodyElses) {
  Start();
  TlsClient slow(Connect());
  ASSERT_TRUE(slow.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  const size_t sent = WriteUntilFull(opened->plain.get());
  EXPECT_LT(sent, kBoundedBytes) << "what a client does not read is bounded";
  TlsClient other(Connect());
  ASSERT_TRUE(other.Handshake());
  auto theirs = NextOpened();
  ASSERT_TRUE(theirs.has_value());
  ASSERT_EQ(write(theirs->plain.get(), "hello", 5), 5);
  EXPECT_EQ(other.Read(5), "hello");
  // All of it comes when the client reads again.
  EXPECT_EQ(slow.Read(sent).size(), sent);
}

TEST_F(TlsSideTest, NothingIsReadFromAClientThatTakesNoAnswers) {
  Start();
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  size_t sent = WriteUntilFull(opened->plain.get());
  pollfd readable = {opened->plain.get(), POLLIN, 0};
  bool is_held = false;
  ASSERT_TRUE(client.Write(kOneFrame));
  // A client that sends may tell TCP that there is room for a few more answers after all.
  for (int i = 0; i < 50 && !is_held; ++i) {
    sent += WriteUntilFull(opened->plain.get());
    char passed[4096];
    while (read(opened->plain.get(), passed, sizeof(passed)) > 0) continue;
    ASSERT_TRUE(client.Write("more"));
    is_held = poll(&readable, 1, 200) == 0;
  }
  EXPECT_TRUE(is_held) << "calls come from a client that is behind";
  EXPECT_EQ(client.Read(sent).size(), sent);
  EXPECT_EQ(poll(&readable, 1, 30'000), 1);
}

TEST_F(TlsSideTest, AClientThatNeverReadsAgainIsCutOff) {
  Start();
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  EXPECT_GT(WriteUntilFull(opened->plain.get()), 0U);
  clock_.Advance(absl::Minutes(11));
  EXPECT_TRUE(WaitForCounts(0, 0));
}

TEST_F(TlsSideTest, ManyMegabytesArriveWhole) {
  Start();
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  *opened->is_known = true;
  std::string sent(8 << 20, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761U >> 13);
  sent.replace(0, kOneFrame.size(), kOneFrame);
  std::thread echo([&] {
    const std::string got = ReadPlain(opened->plain, sent.size());
    EXPECT_TRUE(WriteFully(opened->plain.get(), got, "plain").ok());
  });
  EXPECT_TRUE(client.Write(sent));
  EXPECT_TRUE(client.Read(sent.size()) == sent);
  echo.join();
}

TEST_F(TlsSideTest, AClientThatIsNotKnownMaySendAFirstCallAndNoMore) {
  Start();
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  EXPECT_FALSE(*opened->is_known);
  const std::string call = kOneFrame + std::string(5 << 20, 'x');
  std::thread writer([&] { client.Write(call + call); });
  const size_t passed = ReadPlain(opened->plain, 2 * call.size()).size();
  EXPECT_GE(passed, call.size());
  EXPECT_LT(passed, 2 * call.size());
  EXPECT_TRUE(WaitForCounts(0, 0));
  writer.join();
}

TEST_F(TlsSideTest, AClientThatIsNotKnownMakesSomeCallsAndNoMore) {
  Start();
  TlsClient known(Connect());
  TlsClient stranger(Connect());
  const std::string call("\0\0\0\1\5\0\0\0\1", 9);
  std::string calls = kOneFrame.substr(0, kPrefaceBytes);
  for (int i = 0; i < 300; ++i) calls += call;
  ASSERT_TRUE(known.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  *opened->is_known = true;
  ASSERT_TRUE(known.Write(calls));
  EXPECT_EQ(ReadPlain(opened->plain, calls.size()).size(), calls.size());
  ASSERT_TRUE(stranger.Handshake());
  ASSERT_TRUE(NextOpened().has_value());
  ASSERT_TRUE(stranger.Write(calls));
  EXPECT_TRUE(WaitForCounts(0, 1));
}

TEST_F(TlsSideTest, AClientWhoseHeadersHaveNoEndIsCutOff) {
  Start();
  const KeyPair identity = WorkerIdentity(OwnAuthority(), "gpu-1", clock_.Now());
  TlsClient client(Connect(), {.identity = identity});
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  EXPECT_TRUE(*opened->is_known) << "a worker is known, and may not do it either";
  const std::string headers = std::string("\0\x3e\x80\x01\0\0\0\0\1", 9) + std::string(16'000, 'x');
  ASSERT_TRUE(client.Write(kOneFrame.substr(0, kPrefaceBytes) + headers));
  for (int i = 0; i < 4; ++i) client.Write(headers);
  EXPECT_TRUE(WaitForCounts(0, 0));
}

TEST_F(TlsSideTest, ANewCertificateIsServedWithoutARestart) {
  Start();
  TlsClient before(Connect());
  ASSERT_TRUE(before.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  const std::string old = before.Shown().fingerprint;
  // The own certificate is renewed in time, and the clients' pin stays.
  clock_.Advance(absl::Hours(24 * 61));
  files_->Refresh();
  EXPECT_TRUE(WaitUntil([&] {
    TlsClient after(Connect(), {.authority = files_->pin().pem, .now = clock_.Now()});
    return after.Handshake() && after.Shown().fingerprint != old;
  }));
  ASSERT_EQ(write(opened->plain.get(), "still here", 10), 10);
  EXPECT_EQ(before.Read(10), "still here") << "connections that are open stay";
}

TEST_F(TlsSideTest, WhatWasWrittenIsSentBeforeTheEnd) {
  Start();
  TlsClient client(Connect());
  ASSERT_TRUE(client.Handshake());
  auto opened = NextOpened();
  ASSERT_TRUE(opened.has_value());
  ASSERT_EQ(write(opened->plain.get(), "last words", 10), 10);
  opened.reset();
  client.EndWriting();
  relay_.reset();
  EXPECT_EQ(client.Read(100), "last words");
}

TEST_F(TlsSideTest, TheProbeSeesTheChain) {
  Start();
  std::thread server([this] { Take(listener_.Accept()); });
  const auto chain = ProbeServer("127.0.0.1", listener_.port(), absl::Seconds(30));
  server.join();
  ASSERT_TRUE(chain.ok()) << chain.status();
  ASSERT_EQ(chain->size(), 2u);
  EXPECT_EQ(PinOf(*chain).fingerprint, files_->pin().fingerprint);
}

}  // namespace
}  // namespace trainyard::tls
