// The manager passes descriptors from 3 on, and tells their number and for which process they are.
#include "common/daemon/passed_sockets.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace trainyard {
namespace {

constexpr int kFirst = 3;
constexpr int kMax = 64;

// Returns a number from the environment, or 0, and removes it there.
int TakeNumber(const char* name) {
  const char* text = getenv(name);
  int number = 0;
  if (text != nullptr && !absl::SimpleAtoi(text, &number)) number = 0;
  unsetenv(name);
  return number;
}

}  // namespace

std::vector<int> TakePassedSockets() {
  const bool is_ours = TakeNumber("LISTEN_PID") == getpid();
  const int count = TakeNumber("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  std::vector<int> sockets;
  if (!is_ours) return sockets;
  for (int fd = kFirst; fd < kFirst + count && fd < kFirst + kMax; ++fd) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) sockets.push_back(fd);
  }
  return sockets;
}

}  // namespace trainyard
