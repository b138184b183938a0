// Opens Unix sockets. gRPC could do so as well, but not accept
// connections in a way that survives a lack of descriptors (acceptor.h).
#include "server/listen.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/listen_port.h"

namespace trainyard {
namespace {

constexpr int kBacklog = SOMAXCONN;

// Removes the socket of a server that has died, and nothing else.
absl::Status MakeRoom(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
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

absl::StatusOr<UniqueFd> ListenOnPath(const std::string& path, mode_t mode) {
  TY_RETURN_IF_ERROR(MakeRoom(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot make a socket for", path);
  // On Linux, the file gets the mode of the socket. So there is no moment at which others may
  // connect.
  if (fchmod(fd.get(), mode) != 0) return ErrnoStatus(errno, "cannot set the mode of", path);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    if (errno == EADDRINUSE) return error::AddressInUse(absl::StrCat("unix:", path));
    return ErrnoStatus(errno, "cannot make the socket", path);
  }
  // The umask has narrowed the mode, so it is widened here if it should be wider.
  if (chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, "cannot set the mode of", path);
  if (listen(fd.get(), kBacklog) != 0) return ErrnoStatus(errno, "cannot listen on", path);
  return fd;
}

// Returns the path of a Unix socket, or an empty text.
std::string PathOf(int fd) {
  sockaddr_un name{};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return "";
  return name.sun_family == AF_UNIX ? std::string(name.sun_path) : "";
}

}  // namespace

absl::StatusOr<Listener> Listen(absl::string_view text, mode_t mode, std::vector<int>& passed) {
  TY_ASSIGN_OR_RETURN(rpc::Address address, rpc::ParseAddress(text));
  if (address.kind == rpc::Address::Kind::kTls) return ListenOnPort(std::move(address));
  if (address.kind == rpc::Address::Kind::kTcp) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", text,
        "' is a port, and whoever connects to it could be anybody; listen on "
        "unix:/path, which other hosts reach with `trainyard --server ssh://HOST`, or on "
        "tls:HOST:PORT, where everybody has to sign in"));
  }
  Listener listener{std::move(address), {}};
  const std::string& path = listener.address.path;
  const auto found =
      std::find_if(passed.begin(), passed.end(), [&path](int fd) { return PathOf(fd) == path; });
  if (found == passed.end()) {
    TY_ASSIGN_OR_RETURN(listener.sockets.emplace_back(), ListenOnPath(path, mode));
    return listener;
  }
  listener.is_passed = true;
  const int fd = listener.sockets.emplace_back(*found).get();
  passed.erase(found);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "cannot use the socket", path);
  }
  if ((info.st_mode & 0777 & ~mode) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the socket '", path,
                     "' is open to other users, and --shared is not given; give it, or set "
                     "SocketMode=0600 in the unit of the socket"));
  }
  return listener;
}

}  // namespace trainyard
