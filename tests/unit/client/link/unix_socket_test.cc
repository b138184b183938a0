// Tests how a server is found by its socket.
#include "client/link/unix_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/link/exit_code.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::link {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns a socket that is bound to the path, and listens if asked to.
UniqueFd Bound(const std::string& path, bool listens) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  if (listens) {
    EXPECT_EQ(listen(fd.get(), 4), 0);
  }
  return fd;
}

TEST(FindServer, TakesTheFirstThatListens) {
  trainyard::testing::TempDir dir;
  const UniqueFd stale = Bound(dir.File("stale"), false);
  const UniqueFd live = Bound(dir.File("live"), true);
  const UniqueFd later = Bound(dir.File("later"), true);
  const auto found = FindServer({{"one", "unix:" + dir.File("none")},
                                 {"two", "unix:" + dir.File("stale")},
                                 {"three", "unix:" + dir.File("live")},
                                 {"four", "unix:" + dir.File("later")}},
                                "advice");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->candidate.what, "three");
  EXPECT_TRUE(found->fd.valid());
}

TEST(FindServer, SaysWhatItTriedAndWhatToDo) {
  trainyard::testing::TempDir dir;
  const UniqueFd stale = Bound(dir.File("stale"), false);
  const auto found = FindServer(
      {{"one", "unix:" + dir.File("none")}, {"two", "unix:" + dir.File("stale")}}, "do this");
  EXPECT_EQ(ExitCodeOf(found.status()), kUnreachable);
  EXPECT_EQ(found.status().message(),
            absl::StrCat("no server answers\n  tried one, unix:", dir.File("none"),
                         ": No such file or directory\n  tried two, unix:", dir.File("stale"),
                         ": Connection refused\n  do this"));
}

TEST(ConnectUnixSocket, ASocketThatIsClosedToTheUserIsNotAllowed) {
  trainyard::testing::TempDir dir;
  const UniqueFd live = Bound(dir.File("live"), true);
  if (geteuid() == 0) {
    // Root may use every socket, so the test goes on as nobody.
    ASSERT_EQ(chmod(dir.path().c_str(), 0711), 0);
    ASSERT_EQ(chmod(dir.File("live").c_str(), 0600), 0);
    ASSERT_EQ(seteuid(65534), 0);
  } else {
    ASSERT_EQ(chmod(dir.File("live").c_str(), 0000), 0);
  }
  const auto fd = ConnectUnixSocket("unix:" + dir.File("live"));
  if (getuid() == 0) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(ExitCodeOf(fd.status()), kNotAllowed);
  EXPECT_THAT(std::string(fd.status().message()),
              AllOf(HasSubstr("you are not allowed"), HasSubstr("its socket belongs to"),
                    HasSubstr("ask its owner")));
}

TEST(ConnectUnixSocket, APortIsNoSocket) {
  EXPECT_EQ(ExitCodeOf(ConnectUnixSocket("127.0.0.1:7070").status()), kUsage);
}

}  // namespace
}  // namespace trainyard::link
