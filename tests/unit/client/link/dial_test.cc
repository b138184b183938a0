// Tests the greeting of `trainyard dial-stdio`, and that bytes are carried unchanged.
#include "client/link/dial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/link/unix_socket.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/server_errors.h"

namespace trainyard::link {
namespace {

using ::testing::HasSubstr;

TEST(Greeting, NamesTheServerAndLeavesTheRest) {
  const std::string line = GreetingLine(std::string("unix:/run/a.sock"));
  const auto greeting = FindGreeting(line + "PRI * HTTP/2.0");
  ASSERT_TRUE(greeting.has_value());
  EXPECT_EQ(greeting->server.value(), "unix:/run/a.sock");
  EXPECT_EQ(greeting->bytes, line.size());
}

TEST(Greeting, ErrorsKeepTheirReasonAndTheirText) {
  const auto greeting =
      FindGreeting(GreetingLine(error::ServerNotAllowed("unix:/x", "it is closed")));
  ASSERT_TRUE(greeting.has_value());
  EXPECT_TRUE(absl::IsPermissionDenied(greeting->server.status()));
  EXPECT_EQ(ErrorReason(greeting->server.status()), "SERVER_NOT_ALLOWED");
  EXPECT_THAT(std::string(greeting->server.status().message()), HasSubstr("it is closed"));
}

TEST(Greeting, WhatTheShellPrintsBeforeIsSkipped) {
  const std::string noise = "Welcome to lab!\nquota: trainyard-dial is nice";
  const std::string line = GreetingLine(std::string("unix:/a"));
  const auto greeting = FindGreeting(noise + line);
  ASSERT_TRUE(greeting.has_value());
  EXPECT_EQ(greeting->server.value(), "unix:/a");
  EXPECT_EQ(greeting->bytes, noise.size() + line.size());
}

TEST(Greeting, IsNotThereBeforeItsLastByte) {
  const std::string line = GreetingLine(std::string("unix:/a"));
  for (size_t size = 0; size < line.size(); ++size) {
    EXPECT_FALSE(FindGreeting(line.substr(0, size)).has_value()) << size;
  }
}

TEST(Greeting, ThatOfAnotherVersionIsAnErrorThatSaysSo) {
  for (const char* line : {"\ntrainyard-dial 2 ok unix:/a\n", "\ntrainyard-dial 1 error ???\n",
                           "\ntrainyard-dial 1 error \n"}) {
    const auto greeting = FindGreeting(line);
    ASSERT_TRUE(greeting.has_value()) << line;
    EXPECT_THAT(std::string(greeting->server.status().message()), HasSubstr("the same version"));
  }
}

struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    near = UniqueFd(fds[0]);
    far = UniqueFd(fds[1]);
  }
  UniqueFd near;
  UniqueFd far;
};

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

TEST(CarryStdio, CarriesBothWaysUntilTheServerEnds) {
  Ends server;
  Ends in;
  Ends out;
  std::thread carrier([&] {
    CarryStdio(server.far.get(), in.far.get(), out.far.get());
    out.far = UniqueFd();
  });
  const std::string bytes(3'000'000, 'x');
  std::thread writer([&] { EXPECT_TRUE(WriteFully(in.near.get(), bytes, "in").ok()); });
  std::string received;
  std::array<char, 65536> buffer;
  while (received.size() < bytes.size()) {
    const ssize_t got = read(server.near.get(), buffer.data(), buffer.size());
    ASSERT_GT(got, 0);
    received.append(buffer.data(), static_cast<size_t>(got));
  }
  EXPECT_EQ(received, bytes);
  // The client reads late, so that the carrier has to wait for it.
  std::thread answer([&] {
    EXPECT_TRUE(WriteFully(server.near.get(), bytes, "server").ok());
    server.near = UniqueFd();
  });
  EXPECT_EQ(ReadAll(out.near.get()), bytes);
  writer.join();
  answer.join();
  carrier.join();
}

TEST(CarryStdio, EndsWithTheClient) {
  Ends server;
  Ends in;
  Ends out;
  in.near = UniqueFd();
  CarryStdio(server.far.get(), in.far.get(), out.far.get());
  server.far = UniqueFd();
  EXPECT_EQ(ReadAll(server.near.get()), "");
}

}  // namespace
}  // namespace trainyard::link
