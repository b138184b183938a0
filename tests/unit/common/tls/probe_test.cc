#include "common/tls/probe.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "common/base/files.h"

namespace trainyard::tls {
namespace {

using ::testing::HasSubstr;

// Returns a socket that listens on a free port of the loopback, and its port.
std::pair<UniqueFd, uint16_t> Listen() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  EXPECT_EQ(listen(fd.get(), 8), 0);
  socklen_t size = sizeof(name);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  return {std::move(fd), ntohs(name.sin_port)};
}

TEST(Probe, SaysThatNobodyListens) {
  uint16_t port = 0;
  {
    const auto [fd, free_port] = Listen();
    port = free_port;
  }
  const auto probed = ProbeServer("127.0.0.1", port, absl::Seconds(10));
  EXPECT_TRUE(absl::IsUnavailable(probed.status()));
  EXPECT_THAT(probed.status().message(), HasSubstr("refused"));
}

TEST(Probe, GivesUpAServerThatSaysNothing) {
  const auto [fd, port] = Listen();
  const auto probed = ProbeServer("127.0.0.1", port, absl::Milliseconds(50));
  EXPECT_THAT(probed.status().message(), HasSubstr("no answer within"));
}

TEST(Probe, SaysThatAServerSpeaksNoTls) {
  const auto [fd, port] = Listen();
  // The answer lies there before the question: the kernel takes the connection for the listener.
  std::thread server([&fd = fd] {
    const UniqueFd accepted(accept(fd.get(), nullptr, nullptr));
    EXPECT_GT(send(accepted.get(), "SSH-2.0-OpenSSH\r\n", 17, MSG_NOSIGNAL), 0);
    char byte = 0;
    (void)recv(accepted.get(), &byte, 1, 0);
  });
  const auto probed = ProbeServer("127.0.0.1", port, absl::Seconds(10));
  EXPECT_THAT(probed.status().message(), HasSubstr("does not speak TLS 1.3"));
  server.join();
}

TEST(Probe, SaysThatAHostIsUnknown) {
  EXPECT_TRUE(absl::IsUnavailable(ProbeServer("host.invalid", 7070, absl::Seconds(10)).status()));
}

}  // namespace
}  // namespace trainyard::tls
