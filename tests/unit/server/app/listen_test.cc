#include "server/listen.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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

TEST_F(ListenTest, AFreePathIsTakenForThisUserAlone) {
  const auto listener = Listen(address_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(listener->address.path, path_);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(ListenTest, TheSocketOfADeadServerIsReplaced) {
  { const UniqueFd dead = MakeSocket(path_, true); }
  ASSERT_TRUE(FileExists(path_));
  EXPECT_TRUE(Listen(address_).ok());
}

TEST_F(ListenTest, TheSocketOfALivingServerIsLeft) {
  const UniqueFd alive = MakeSocket(path_, true);
  EXPECT_EQ(ErrorReason(Listen(address_).status()), "ADDRESS_IN_USE");
  EXPECT_TRUE(FileExists(path_));
}

TEST_F(ListenTest, WhatIsNoSocketIsNeverRemoved) {
  dir_.Write("s", "precious");
  EXPECT_EQ(ErrorReason(Listen(address_).status()), "ADDRESS_IN_USE");
  EXPECT_EQ(*ReadFile(path_), "precious");
}

TEST_F(ListenTest, AFolderThatIsNotThereIsNamed) {
  const auto listener = Listen("unix:" + dir_.File("no/such"));
  EXPECT_TRUE(absl::IsNotFound(listener.status()));
  EXPECT_THAT(std::string(listener.status().message()), HasSubstr(dir_.File("no")));
}

TEST_F(ListenTest, ASharedSocketIsOpenToAllUsersWhateverTheUmaskIs) {
  const mode_t before = umask(077);
  const auto listener = Listen(address_, 0666);
  umask(before);
  ASSERT_TRUE(listener.ok()) << listener.status();
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666U);
}

TEST_F(ListenTest, ASocketThatWasPassedIsUsedOnce) {
  UniqueFd other = MakeSocket(dir_.File("other"), true);
  ASSERT_EQ(chmod(dir_.File("other").c_str(), 0600), 0);
  UniqueFd own = MakeSocket(path_, true);
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  const int number = own.get();
  std::vector<int> passed = {other.get(), own.release()};
  const auto listener = Listen(address_, 0600, passed);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(listener->is_passed);
  ASSERT_EQ(listener->sockets.size(), 1U);
  EXPECT_EQ(listener->sockets[0].get(), number);
  EXPECT_NE(fcntl(number, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(passed, std::vector<int>{other.get()});
  EXPECT_EQ(ErrorReason(Listen(address_, 0600, passed).status()), "ADDRESS_IN_USE");
  EXPECT_FALSE(Listen("unix:" + dir_.File("third"), 0600, passed)->is_passed);
}

TEST_F(ListenTest, ASocketThatIsOpenToOthersMustBeMeantToBe) {
  UniqueFd open = MakeSocket(path_, true);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  std::vector<int> passed = {dup(open.get())};
  const absl::Status status = Listen(address_, 0600, passed).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--shared"));
  passed = {dup(open.get())};
  EXPECT_TRUE(Listen(address_, 0666, passed).ok());
}

TEST_F(ListenTest, PortsAreRefusedWithTheReason) {
  for (const char* text : {"127.0.0.1:7070", "localhost:0", "[::1]:7070"}) {
    const auto listener = Listen(text);
    EXPECT_TRUE(absl::IsInvalidArgument(listener.status())) << text;
    EXPECT_THAT(std::string(listener.status().message()), HasSubstr("ssh://HOST")) << text;
  }
}

}  // namespace
}  // namespace trainyard
