// The socket for all users of a host, under attack by one of them, who breaks the rules of HTTP/2,
// never reads, or connects without end. Nothing crashes, and others are served meanwhile.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "tests/integration/shared_yard.h"
#include "tests/integration/stranger.h"
#include "tests/testing/wait.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::testing {
namespace {

constexpr uint8_t kWholeCall = kEndHeaders | kEndStream;
const char* const kListJobs = "/trainyard.v1.JobService/ListJobs";
// One user makes the server take less than this. Before users had limits, it took gigabytes.
constexpr int64_t kTakenMax = int64_t{128} << 20;

// Connections of this thread are those of another user, for only its own identity is changed.
void BecomeThisThread(int uid) {
  ASSERT_EQ(syscall(SYS_setresgid, uid, uid, uid), 0);
  ASSERT_EQ(syscall(SYS_setresuid, uid, uid, uid), 0);
}

// Reads and writes give up after a while.
UniqueFd ConnectTo(const std::string& path, int patience_s = 5) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {patience_s, 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, option, &patience, sizeof(patience)), 0);
  }
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return {};
  return fd;
}

// Returns false if not all of it is taken.
bool Send(const UniqueFd& fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = send(fd.get(), &bytes[at], bytes.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += static_cast<size_t>(sent);
  }
  return true;
}

std::string Greeting(bool acknowledges) {
  constexpr uint8_t kAcknowledged = 1;
  return absl::StrCat(kPreface, Frame(kSettingsFrame, 0, 0, ""),
                      acknowledges ? Frame(kSettingsFrame, kAcknowledged, 0, "") : "");
}

// Returns the calls with these numbers, on a connection that has remembered the headers of the
// first one.
std::string Calls(uint32_t begin, uint32_t end, uint8_t flags = kWholeCall) {
  std::string calls;
  for (uint32_t i = begin; i < end; ++i) {
    calls += Frame(kHeadersFrame, flags, 2 * i + 1,
                   i == 0 ? CallHeaders(kListJobs, true) : std::string(kSameHeaders));
  }
  return calls;
}

class PeopleAttackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = host_.WhyNot(); !why.empty()) GTEST_SKIP() << why;
    host_.Start();
    before_ = ResidentBytes(host_.yard().server()->pid());
  }
  void TearDown() override {
    if (host_.yard().server() == nullptr) return;
    EXPECT_TRUE(host_.yard().server()->running()) << "the server has died";
    EXPECT_TRUE(WaitUntil([this] { return host_.As(kNobody, {"whoami"}).exit_code == 0; }))
        << "what was taken is not free again";
  }

  // Has a user attack, in a thread of its own, while others are served. Returns what the server
  // has taken meanwhile.
  int64_t TakenBy(const std::function<void(const std::string& path)>& attack) {
    std::atomic<bool> is_over = false;
    std::thread mallory([&] {
      BecomeThisThread(kNobody);
      attack(host_.path());
      is_over = true;
    });
    const auto channel = rpc::MakeChannel(host_.address());
    EXPECT_TRUE(channel.ok());
    const auto access = v1::AccessService::NewStub(*channel);
    int64_t taken = 0;
    std::vector<absl::Duration> waits;
    while (!is_over || waits.size() < 100) {
      grpc::ClientContext context;
      rpc::SetTimeout(context, kPatience);
      v1::WhoAmIResponse who;
      const absl::Duration begin = Clock::Real()->Uptime();
      const grpc::Status status = access->WhoAmI(&context, {}, &who);
      waits.push_back(Clock::Real()->Uptime() - begin);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(who.user(), "root");
      // Another user comes through the same relay, by connections of its own.
      if (waits.size() % 50 == 1) {
        const ProcessResult listed = host_.As(kNameless, {"ls"});
        EXPECT_EQ(listed.exit_code, 0) << listed.err;
      }
      taken = std::max(taken, ResidentBytes(host_.yard().server()->pid()) - before_);
      if (!status.ok()) break;
    }
    mallory.join();
    std::sort(waits.begin(), waits.end());
    RecordProperty("p99_ms",
                   absl::StrCat(absl::ToDoubleMilliseconds(waits[waits.size() * 99 / 100])));
    RecordProperty("taken_mib", absl::StrCat(taken >> 20));
    return taken;
  }

  SharedYard host_;
  int64_t before_ = 0;
};

TEST_F(PeopleAttackTest, HeadersWithoutEndEndTheConnection) {
  const int64_t taken = TakenBy([](const std::string& path) {
    constexpr int kFrames = 4000;  // of 16 KiB
    const UniqueFd fd = ConnectTo(path);
    // gRPC keeps its limit of headers only for clients that acknowledge it.
    Send(fd, Greeting(false) + Frame(kHeadersFrame, 0, 1, CallHeaders(kListJobs)));
    std::string headers;
    while (headers.size() < 16'000) headers += Header(absl::StrCat("x-", headers.size()), "value");
    bool is_taken = true;
    for (int i = 0; i < kFrames && is_taken; ++i) {
      is_taken = Send(fd, Frame(kContinuationFrame, 0, 1, headers));
    }
    EXPECT_FALSE(is_taken);
  });
  EXPECT_LT(taken, kTakenMax);
}

TEST_F(PeopleAttackTest, CallsWithoutEndOfAPeerThatNeverReadsEndTheConnection) {
  for (const bool acknowledges : {false, true}) {
    const int64_t taken = TakenBy([acknowledges](const std::string& path) {
      constexpr uint32_t kCalls = 200'000;  // of 15 bytes each
      const UniqueFd fd = ConnectTo(path);
      bool is_taken = Send(fd, Greeting(acknowledges));
      for (uint32_t i = 0; i < kCalls && is_taken; i += 100) is_taken = Send(fd, Calls(i, i + 100));
      EXPECT_FALSE(is_taken);
    });
    EXPECT_LT(taken, kTakenMax);
  }
}

TEST_F(PeopleAttackTest, CallsThatAreTakenBackAtOnceKeepNobodyWaiting) {
  const int64_t taken = TakenBy([](const std::string& path) {
    constexpr uint32_t kCalls = 100'000;
    const std::string cancelled("\0\0\0\x8", 4);
    const UniqueFd fd = ConnectTo(path);
    bool is_taken = Send(fd, Greeting(true));
    for (uint32_t i = 0; i < kCalls && is_taken; ++i) {
      is_taken = Send(
          fd, absl::StrCat(Calls(i, i + 1), Frame(kResetStreamFrame, 0, 2 * i + 1, cancelled)));
    }
    EXPECT_FALSE(is_taken);
  });
  EXPECT_LT(taken, kTakenMax);
}

TEST_F(PeopleAttackTest, CallsInAllConnectionsOfAUserHaveOneLimit) {
  // Each connection has as many calls as one may have, and each call waits for its message.
  const int64_t taken = TakenBy([](const std::string& path) {
    std::vector<UniqueFd> open;
    for (int i = 0; i < 250; ++i) {
      open.push_back(ConnectTo(path, 1));
      Send(open.back(), Greeting(true) + Calls(0, 900, kEndHeaders));
    }
  });
  EXPECT_LT(taken, kTakenMax);
}

TEST_F(PeopleAttackTest, MessagesThatAreNeverCompleteLeaveTheServerRunning) {
  const int64_t taken = TakenBy([](const std::string& path) {
    const std::string head("\0\0\x3d\x09\0", 5);  // of a message of 4 MB
    const std::string headers = CallHeaders("/trainyard.v1.JobService/CreateJob");
    std::vector<UniqueFd> open;
    for (int i = 0; i < 8; ++i) {
      open.push_back(ConnectTo(path, 1));
      bool is_taken = Send(open.back(), Greeting(true));
      for (uint32_t stream = 1; stream < 1000 && is_taken; stream += 2) {
        std::string call = Frame(kHeadersFrame, kEndHeaders, stream, headers);
        call += Frame(kDataFrame, 0, stream, head);
        for (int j = 0; j < 60; ++j) call += Frame(kDataFrame, 0, stream, std::string(16'000, 'x'));
        is_taken = Send(open.back(), call);
      }
    }
  });
  // gRPC keeps messages of all connections below 1 GiB.
  EXPECT_LT(taken, (int64_t{1} << 30) + kTakenMax);
}

TEST_F(PeopleAttackTest, AUserMayHaveAThousandCallsAtATime) {
  constexpr size_t kCalls = 1000;
  size_t ended = 0;
  TakenBy([&ended](const std::string& path) {
    const UniqueFd fd = ConnectTo(path, 60);
    ASSERT_TRUE(Send(fd, Greeting(true) + Calls(0, kCalls)));
    // Counts the frames that end a stream. The answers are small, and nothing has to be
    // acknowledged for them.
    constexpr size_t kHeadBytes = 9;
    std::string bytes;
    char some[65536];
    while (ended < kCalls) {
      const ssize_t got = recv(fd.get(), some, sizeof(some), 0);
      if (got <= 0) return;
      bytes.append(some, static_cast<size_t>(got));
      const auto byte = [&bytes](size_t i) { return static_cast<unsigned char>(bytes[i]); };
      while (bytes.size() >= kHeadBytes) {
        const size_t size = kHeadBytes + (size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2));
        if (bytes.size() < size) break;
        if (byte(3) == kHeadersFrame && (byte(4) & kEndStream) != 0) ++ended;
        bytes.erase(0, size);
      }
    }
  });
  EXPECT_EQ(ended, kCalls);
}

TEST_F(PeopleAttackTest, WhoeverConnectsTenThousandTimesTakesNothingFromOthers) {
  const int64_t taken = TakenBy([](const std::string& path) {
    constexpr int kConnections = 10'000;
    constexpr size_t kKept = 900;  // below the limit of descriptors of this process
    std::vector<UniqueFd> kept;
    for (int i = 0; i < kConnections; ++i) {
      UniqueFd fd = ConnectTo(path);
      if (fd.valid() && kept.size() < kKept) kept.push_back(std::move(fd));
    }
  });
  EXPECT_LT(taken, kTakenMax);
}

}  // namespace
}  // namespace trainyard::testing
