#include "server/listen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

// A bound Unix socket, which listens or, like that of a dead server, does not.
UniqueFd MakeSocket(const std::string& path, bool is_listening) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  EXPECT_EQ(is_listening ? listen(fd.get(), 8) : 0, 0);
  return fd;
}

class ListenTest : public ::testing::Test {
 protected:
  testing::TempDir dir_;
  const std::string path_ = dir_.File("s");
  const std::string address_ = "unix:" + path_;
};

TEST_F(ListenTest, AFreePathIsTaken) {
  const auto address = PrepareAddress(address_);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->path, path_);
}

TEST_F(ListenTest, TheSocketOfADeadServerIsRemoved) {
  { const UniqueFd dead = MakeSocket(path_, true); }
  ASSERT_TRUE(FileExists(path_));
  EXPECT_TRUE(PrepareAddress(address_).ok());
  EXPECT_FALSE(FileExists(path_));
}

TEST_F(ListenTest, TheSocketOfALivingServerIsLeft) {
  const UniqueFd alive = MakeSocket(path_, true);
  EXPECT_EQ(ErrorReason(PrepareAddress(address_).status()), "ADDRESS_IN_USE");
  EXPECT_TRUE(FileExists(path_));
}

TEST_F(ListenTest, WhatIsNoSocketIsNeverRemoved) {
  dir_.Write("s", "precious");
  EXPECT_EQ(ErrorReason(PrepareAddress(address_).status()), "ADDRESS_IN_USE");
  EXPECT_EQ(*ReadFile(path_), "precious");
}

TEST_F(ListenTest, AFolderThatIsNotThereIsNamed) {
  const auto address = PrepareAddress("unix:" + dir_.File("no/such"));
  EXPECT_TRUE(absl::IsNotFound(address.status()));
  EXPECT_THAT(std::string(address.status().message()), HasSubstr(dir_.File("no")));
}

TEST_F(ListenTest, OtherHostsAreRefusedWithTheReason) {
  for (const char* text : {"0.0.0.0:7070", "192.168.1.2:7070", "lab.example:7070", "[::]:7070"}) {
    const auto address = PrepareAddress(text);
    EXPECT_TRUE(absl::IsInvalidArgument(address.status())) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("TLS")) << text;
  }
  EXPECT_TRUE(PrepareAddress("127.0.0.1:0").ok());
}

}  // namespace
}  // namespace trainyard
