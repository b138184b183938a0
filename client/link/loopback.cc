// The port is told by the kernel, since the caller may have asked for any that is free.
#include "client/link/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::link {
namespace {

constexpr int kBacklog = 128;

}  // namespace

absl::StatusOr<LoopbackListener> ListenOnLoopback(int port, const std::string& advice) {
  LoopbackListener listener;
  listener.socket = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int one = 1;
  (void)setsockopt(listener.socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.socket.get(), generic, size) != 0 ||
      listen(listener.socket.get(), kBacklog) != 0 ||
      getsockname(listener.socket.get(), generic, &size) != 0) {
    const std::string where = absl::StrCat("127.0.0.1:", port);
    if (errno == EADDRINUSE) return Annotate(error::AddressInUse(where), advice);
    return ErrnoStatus(errno, "cannot listen on", where);
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

}  // namespace trainyard::link
