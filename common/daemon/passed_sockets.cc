// The manager passes descriptors from 3 on, and tells their number and for which process they are.
#include "common/daemon/passed_sockets.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/numbers.h"

namespace trainyard {
namespace {

constexpr int kFirst = 3;
constexpr int kMax = 64;

}  // namespace

std::vector<int> PassedSockets(const ServiceVariables& variables) {
  int pid = 0;
  int count = 0;
  std::vector<int> sockets;
  if (!absl::SimpleAtoi(variables.listen_pid, &pid) || pid != getpid()) return sockets;
  if (!absl::SimpleAtoi(variables.listen_fds, &count)) return sockets;
  for (int fd = kFirst; fd < kFirst + count && fd < kFirst + kMax; ++fd) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) sockets.push_back(fd);
  }
  return sockets;
}

}  // namespace trainyard
