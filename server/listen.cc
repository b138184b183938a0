// Makes sure that an address can be listened on, and that only this user reaches it.
#include "server/listen.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

// gRPC would remove the socket of a living server, so we check the path first.
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

}  // namespace

absl::StatusOr<rpc::Address> PrepareAddress(absl::string_view text) {
  TY_ASSIGN_OR_RETURN(rpc::Address address, rpc::ParseAddress(text));
  if (address.kind == rpc::Address::Kind::kUnix) TY_RETURN_IF_ERROR(MakeRoom(address.path));
  return address;
}

}  // namespace trainyard
