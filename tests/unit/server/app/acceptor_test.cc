#include "server/acceptor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/listen.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard {
namespace {

// Sets the limit of open files of this process while it lives.
class ScopedDescriptorLimit {
 public:
  explicit ScopedDescriptorLimit(rlim_t limit) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lowered = {limit, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
  }
  ~ScopedDescriptorLimit() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

void Connect(const UniqueFd& socket, const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
}

// The undefined-behaviour sanitizer opens a pipe to look at an object whose virtual member is
// called.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kNeedsDescriptors = true;
#else
constexpr bool kNeedsDescriptors = false;
#endif

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() {
    auto listener = Listen("unix:" + path_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    acceptor_.emplace(std::move(listener->sockets), [this](int, const UniqueFd& connection) {
      EXPECT_TRUE(connection.valid());
      ++accepted_;
    });
  }
  static UniqueFd MakeSocket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM, 0)); }
  bool WaitForAccepted(int count) {
    return testing::WaitUntil([&] { return accepted_ == count; }, absl::Seconds(10));
  }
  // Returns true once the other side has closed the connection.
  static bool IsClosed(const UniqueFd& socket) {
    char byte = 0;
    return recv(socket.get(), &byte, 1, 0) == 0;
  }

  testing::TempDir dir_;
  const std::string path_ = dir_.File("s");
  std::atomic<int> accepted_ = 0;
  std::optional<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, HandsConnectionsOn) {
  const UniqueFd first = MakeSocket();
  const UniqueFd second = MakeSocket();
  Connect(first, path_);
  Connect(second, path_);
  EXPECT_TRUE(WaitForAccepted(2));
}

TEST_F(AcceptorTest, AcceptsAgainOnceThereAreDescriptors) {
  if (kNeedsDescriptors) GTEST_SKIP() << "the sanitizer itself needs descriptors";
  const UniqueFd waiting = MakeSocket();
  {
    const ScopedDescriptorLimit none(static_cast<rlim_t>(waiting.get()));
    Connect(waiting, path_);
    EXPECT_FALSE(testing::WaitUntil([&] { return accepted_ > 0; }, absl::Milliseconds(300)));
  }
  EXPECT_TRUE(WaitForAccepted(1));
}

TEST_F(AcceptorTest, ClosesConnectionsThatWouldTakeTheLastDescriptors) {
  if (kNeedsDescriptors) GTEST_SKIP() << "the sanitizer itself needs descriptors";
  const UniqueFd refused = MakeSocket();
  {
    const auto next = static_cast<rlim_t>(refused.get() + 1);
    // A quarter of so few is kept.
    const ScopedDescriptorLimit few(next + 2);
    Connect(refused, path_);
    EXPECT_TRUE(IsClosed(refused));
    EXPECT_EQ(accepted_, 0);
  }
  const UniqueFd taken = MakeSocket();
  Connect(taken, path_);
  EXPECT_TRUE(WaitForAccepted(1));
}

}  // namespace
}  // namespace trainyard
