#include "common/daemon/passed_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace trainyard {
namespace {

// Runs in a child, as what is passed has fixed numbers. Returns its exit code: 0 if all is right.
int TakesOneSocket() {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (dup2(fd, 3) != 3) return 1;
  setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
  setenv("LISTEN_FDS", "1", 1);
  if (TakePassedSockets() != std::vector<int>{3}) return 2;
  if ((fcntl(3, F_GETFD) & FD_CLOEXEC) == 0) return 3;
  if (getenv("LISTEN_PID") != nullptr || getenv("LISTEN_FDS") != nullptr) return 4;
  return TakePassedSockets().empty() ? 0 : 5;
}

TEST(PassedSockets, AreTakenOnce) {
  EXPECT_EXIT(_exit(TakesOneSocket()), ::testing::ExitedWithCode(0), "");
}

TEST(PassedSockets, ThoseOfAnotherProcessAreNotOurs) {
  setenv("LISTEN_PID", "1", 1);
  setenv("LISTEN_FDS", "1", 1);
  EXPECT_TRUE(TakePassedSockets().empty());
  EXPECT_EQ(getenv("LISTEN_FDS"), nullptr);
  EXPECT_TRUE(TakePassedSockets().empty()) << "nothing was passed";
}

}  // namespace
}  // namespace trainyard
