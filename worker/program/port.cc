// Claims a port by a Unix socket whose name contains it: only one process can bind such a name, and
// the kernel forgets it with the process.
#include "worker/program/port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace trainyard::program {
namespace {

// Returns an invalid descriptor if another process has claimed the port.
UniqueFd Claim(int port) {
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // A name that begins with NUL is none of the file system.
  const std::string text = absl::StrCat("trainyard-port-", port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) {
    return UniqueFd();
  }
  return fd;
}

// Programs listen at all addresses of a family, or at the one that is given.
bool IsFree(int family, int port) {
  const UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return family == AF_INET6;  // a host without IPv6
  const int yes = 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (family == AF_INET6) {
    (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    return bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0;
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(port));
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0;
}

}  // namespace

absl::StatusOr<PortClaim> PortClaim::Take(uint64_t seed) {
  constexpr int kCount = kLast - kFirst + 1;
  for (int i = 0; i < kCount; ++i) {
    const int port = kFirst + static_cast<int>((seed + static_cast<uint64_t>(i)) % kCount);
    UniqueFd claim = Claim(port);
    if (!claim.valid() || !IsFree(AF_INET, port) || !IsFree(AF_INET6, port)) continue;
    return PortClaim(port, std::move(claim));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no port from ", kFirst, " to ", kLast, " is free on this host"));
}

}  // namespace trainyard::program
