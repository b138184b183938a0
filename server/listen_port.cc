// Opens sockets of TCP. gRPC never sees them: TLS ends before it (server/tls).
#include "server/listen_port.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

// Returns the port of a bound socket.
uint16_t PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  TY_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

// Listens on `found`, but on `port`. Returns NOT_FOUND if this host has no such address.
absl::StatusOr<UniqueFd> ListenOn(const addrinfo& found, uint16_t port, const std::string& text) {
  UniqueFd fd(socket(found.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    if (errno == EAFNOSUPPORT) return absl::NotFoundError(text);
    return ErrnoStatus(errno, "cannot make a socket for", text);
  }
  const int on = 1;
  // A server that restarts need not wait for the connections of the one before it.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage name{};
  std::memcpy(&name, found.ai_addr, found.ai_addrlen);
  (found.ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                               : reinterpret_cast<sockaddr_in*>(&name)->sin_port) = htons(port);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), found.ai_addrlen) != 0) {
    if (errno == EADDRINUSE) return error::AddressInUse(text);
    if (errno == EADDRNOTAVAIL) return absl::NotFoundError(text);
    return ErrnoStatus(errno, "cannot bind", text);
  }
  if (listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE) return error::AddressInUse(text);
    return ErrnoStatus(errno, "cannot listen on", text);
  }
  return fd;
}

}  // namespace

absl::StatusOr<Listener> ListenOnPort(rpc::Address address) {
  const std::string text = address.ToString();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot resolve '", address.host, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  Listener listener{std::move(address), {}};
  for (; found != nullptr; found = found->ai_next) {
    absl::StatusOr<UniqueFd> fd = ListenOn(*found, listener.address.port, text);
    // A host may lack IPv6, and its name for the loopback interface have an address of it.
    if (absl::IsNotFound(fd.status())) continue;
    TY_RETURN_IF_ERROR(fd.status());
    listener.address.port = PortOf(fd->get());
    listener.sockets.push_back(*std::move(fd));
  }
  if (listener.sockets.empty()) {
    return absl::NotFoundError(absl::StrCat("this host has no address '", text, "'"));
  }
  return listener;
}

}  // namespace trainyard
