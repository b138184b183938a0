// The form of the table: https://www.kernel.org/doc/html/latest/networking/proc_net_tcp.html
#include "client/web/socket_owner.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"

namespace trainyard::web {
namespace {

constexpr size_t kLocalField = 1;
constexpr size_t kRemoteField = 2;
constexpr size_t kUserField = 7;

// Returns an address as the table has it: the bytes of the address in the order of the machine.
std::string TableText(const sockaddr_in& address) {
  return absl::StrFormat("%08X:%04X", address.sin_addr.s_addr, ntohs(address.sin_port));
}

}  // namespace

std::optional<uid_t> OwnerIn(absl::string_view table, absl::string_view local,
                             absl::string_view remote) {
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uid_t user = 0;
    if (fields.size() > kUserField && fields[kLocalField] == local &&
        fields[kRemoteField] == remote && absl::SimpleAtoi(fields[kUserField], &user)) {
      return user;
    }
  }
  return std::nullopt;
}

std::optional<uid_t> OwnerOfOtherEnd(int fd) {
  sockaddr_in here{};
  sockaddr_in there{};
  socklen_t here_size = sizeof here;
  socklen_t there_size = sizeof there;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) != 0 ||
      here.sin_family != AF_INET) {
    return std::nullopt;
  }
  const auto table = ReadFile("/proc/net/tcp");
  if (!table.ok()) return std::nullopt;
  // The other end sees the two addresses the other way round.
  return OwnerIn(*table, TableText(there), TableText(here));
}

}  // namespace trainyard::web
