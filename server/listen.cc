// Opens Unix sockets and ports of the loopback interface. gRPC could do so as well, but not accept
// connections in a way that survives a lack of descriptors (acceptor.h).
#include "server/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

constexpr int kBacklog = SOMAXCONN;

// Removes the socket of a server that has died, and nothing else.
absl::Status MakeRoom(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return ErrnoStatus(errno, "cannot make a socket in", folder);
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "cannot stat", path);
  }
  if (!S_ISSOCK(info.st_mode)) return error::AddressInUse(absl::StrCat("unix:", path));
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot make a socket for", path);
  sockaddr_un name{};
  TY_CHECK(path.size() < sizeof(name.sun_path));  // ParseAddress refuses longer paths
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) {
    return error::AddressInUse(absl::StrCat("unix:", path));
  }
  if (errno != ECONNREFUSED) return ErrnoStatus(errno, "cannot connect to", path);
  LogInfo("removing the socket of a server that is gone", {{"path", path}});
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    return ErrnoStatus(errno, "cannot remove", path);
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ListenOnPath(const std::string& path) {
  TY_RETURN_IF_ERROR(MakeRoom(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot make a socket for", path);
  // On Linux, the file gets the mode of the socket. So there is no moment at which others may
  // connect.
  if (fchmod(fd.get(), 0600) != 0) return ErrnoStatus(errno, "cannot set the mode of", path);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    if (errno == EADDRINUSE) return error::AddressInUse(absl::StrCat("unix:", path));
    return ErrnoStatus(errno, "cannot make the socket", path);
  }
  if (listen(fd.get(), kBacklog) != 0) return ErrnoStatus(errno, "cannot listen on", path);
  return fd;
}

// Returns the port of a bound socket.
uint16_t PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  TY_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

// Listens on `found`, but on `port`. Returns NOT_FOUND if this host has no such address.
absl::StatusOr<UniqueFd> ListenOnPort(const addrinfo& found, uint16_t port,
                                      const std::string& text) {
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
  if (listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) return error::AddressInUse(text);
    return ErrnoStatus(errno, "cannot listen on", text);
  }
  return fd;
}

absl::StatusOr<Listener> ListenOnHost(rpc::Address address) {
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
    absl::StatusOr<UniqueFd> fd = ListenOnPort(*found, listener.address.port, text);
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

}  // namespace

absl::StatusOr<Listener> Listen(absl::string_view text) {
  TY_ASSIGN_OR_RETURN(rpc::Address address, rpc::ParseAddress(text));
  if (address.kind == rpc::Address::Kind::kTcp) return ListenOnHost(std::move(address));
  Listener listener{std::move(address), {}};
  TY_ASSIGN_OR_RETURN(listener.sockets.emplace_back(), ListenOnPath(listener.address.path));
  return listener;
}

}  // namespace trainyard
