// Tells apart why a socket cannot be used: it is not there, nobody listens, or it is not open to
// this user. gRPC says only that the connection failed.
#include "client/link/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/server_errors.h"
#include "common/base/status_macros.h"
#include "common/base/system_accounts.h"
#include "common/rpc/address.h"

namespace trainyard::link {
namespace {

// Returns why the socket refuses this user: whose it is, or that a folder above it is closed.
std::string Refusal(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "a folder above its socket is closed to you";
  return absl::StrFormat("its socket belongs to '%s' and has mode %04o", UserName(info.st_uid),
                         info.st_mode & 07777u);
}

// A server that accepts no connection for so long is stuck, or flooded.
constexpr timeval kSocketTimeout = {.tv_sec = 5, .tv_usec = 0};

// Connects, and returns 0 or the error's number.
int Connect(const std::string& path, UniqueFd& fd) {
  fd = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  // The timeout of sending is that of connecting, too.
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kSocketTimeout, sizeof(kSocketTimeout));
  sockaddr_un name{};
  TY_CHECK(path.size() < sizeof(name.sun_path));  // ParseAddress refuses longer paths
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

std::string CauseText(int error_number) {
  return error_number == EAGAIN ? "it accepts no connections" : std::strerror(error_number);
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectUnixSocket(absl::string_view address) {
  TY_ASSIGN_OR_RETURN(const rpc::Address parsed, rpc::ParseAddress(address));
  if (parsed.kind != rpc::Address::Kind::kUnix) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address, "' is no Unix socket; use unix:/path/to/server.sock"));
  }
  UniqueFd fd;
  const int cause = Connect(parsed.path, fd);
  if (cause == 0) return fd;
  return cause == EACCES || cause == EPERM ? error::ServerNotAllowed(address, Refusal(parsed.path))
                                           : error::ServerUnreachable(address, CauseText(cause));
}

absl::StatusOr<Found> FindServer(const std::vector<Candidate>& candidates,
                                 absl::string_view advice) {
  std::string tried;
  for (const Candidate& candidate : candidates) {
    TY_ASSIGN_OR_RETURN(const rpc::Address parsed, rpc::ParseAddress(candidate.address));
    UniqueFd fd;
    const int cause = Connect(parsed.path, fd);
    if (cause == 0) return Found{candidate, std::move(fd)};
    // A server that is there but does not answer is no reason to use another one: the user's jobs
    // are there.
    if (cause != ENOENT && cause != ENOTDIR && cause != ECONNREFUSED) {
      return ConnectUnixSocket(candidate.address).status();
    }
    absl::StrAppend(&tried, "\n  tried ", candidate.what, ", ", candidate.address, ": ",
                    CauseText(cause));
  }
  return error::NoServer(tried, advice);
}

}  // namespace trainyard::link
