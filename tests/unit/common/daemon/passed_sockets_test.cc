#include "common/daemon/passed_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace trainyard {
namespace {

// Runs in a child, as what is passed has fixed numbers. Returns its exit code: 0 if all is right.
int TakesOneSocket() {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (dup2(fd, 3) != 3) return 1;
  ServiceVariables variables;
  variables.listen_pid = std::to_string(getpid());
  variables.listen_fds = "1";
  if (PassedSockets(variables) != std::vector<int>{3}) return 2;
  return (fcntl(3, F_GETFD) & FD_CLOEXEC) != 0 ? 0 : 3;
}

TEST(PassedSockets, AreTakenAndClosedForOthers) {
  EXPECT_EXIT(_exit(TakesOneSocket()), ::testing::ExitedWithCode(0), "");
}

TEST(PassedSockets, ThoseOfAnotherProcessAreNotOurs) {
  ServiceVariables variables;
  variables.listen_pid = "1";
  variables.listen_fds = "1";
  EXPECT_TRUE(PassedSockets(variables).empty());
  EXPECT_TRUE(PassedSockets({}).empty()) << "nothing was passed";
}

}  // namespace
}  // namespace trainyard
