#include "common/rpc/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace trainyard::rpc {
namespace {

using ::testing::HasSubstr;

TEST(Address, AUnixSocketKeepsItsPath) {
  const auto address = ParseAddress("unix:/run/trainyard.sock");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->kind, Address::Kind::kUnix);
  EXPECT_EQ(address->path, "/run/trainyard.sock");
  EXPECT_EQ(ParseAddress("unix:///run/a.sock")->ToString(), "unix:/run/a.sock");
}

TEST(Address, LoopbackPortsAreAccepted) {
  EXPECT_EQ(ParseAddress("127.0.0.1:7070")->port, 7070);
  EXPECT_EQ(ParseAddress("localhost:1")->ToString(), "localhost:1");
  EXPECT_EQ(ParseAddress("[::1]:9")->ToString(), "[::1]:9");
}

TEST(Address, WhatIsNoAddressIsRefusedWithTheAcceptedForms) {
  for (const char* text : {"", "unix:", "unix:relative.sock", "localhost",
                           "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:5"}) {
    const auto address = ParseAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("use unix:/path"));
  }
}

TEST(Address, OtherHostsAreRefusedBecauseTheyNeedTls) {
  EXPECT_THAT(std::string(ParseAddress("10.0.0.1:7070").status().message()),
              HasSubstr("is no loopback address, and other hosts need TLS"));
}

TEST(Address, ASocketPathThatDoesNotFitIsRefused) {
  EXPECT_TRUE(ParseAddress("unix:/" + std::string(106, 'x')).ok());
  EXPECT_THAT(std::string(ParseAddress("unix:/" + std::string(107, 'x')).status().message()),
              HasSubstr("has a path of 108 bytes; sockets take 107"));
}

TEST(Address, TheDefaultServerLivesInTheStateHome) {
  EXPECT_EQ(DefaultServerAddress("", "/home/anna"),
            "unix:/home/anna/.local/state/trainyard/server/server.sock");
  EXPECT_EQ(DefaultServerAddress("/state", "/home/anna"),
            "unix:/state/trainyard/server/server.sock");
}

}  // namespace
}  // namespace trainyard::rpc
