// Reads SO_PEERCRED and SO_PEERGROUPS, which no process can forge.
#include "server/runtime/local_process.h"

#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/system_accounts.h"

namespace trainyard::runtime {
namespace {

constexpr absl::Duration kNameAgeMax = absl::Minutes(5);
constexpr size_t kGroupsMax = 65'536;  // of a process, as in Linux

}  // namespace

absl::StatusOr<access::LocalProcess> LocalProcesses::AtOtherEnd(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return ErrnoStatus(errno, "cannot tell who has connected to", "the socket");
  }
  access::LocalProcess process;
  process.uid = credentials.uid;
  std::vector<gid_t> groups(64);
  size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  int result = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  if (result != 0 && errno == ERANGE && size <= kGroupsMax * sizeof(gid_t)) {
    groups.resize(size / sizeof(gid_t));
    result = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  }
  groups.resize(result == 0 ? size / sizeof(gid_t) : 0);
  process.groups.assign(groups.begin(), groups.end());
  process.groups.push_back(credentials.gid);
  const absl::Duration now = clock_.Uptime();
  Name& name = names_[process.uid];
  if (name.text.empty() || now - name.looked_up > kNameAgeMax) {
    name = {UserName(process.uid), now};
  }
  process.user = name.text;
  return process;
}

}  // namespace trainyard::runtime
