// Reads SO_PEERCRED and SO_PEERGROUPS, which no process can forge.
#include "server/runtime/local_process.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::runtime {
namespace {

constexpr absl::Duration kNameAgeMax = absl::Minutes(5);
// The texts of an entry may take this much; those of large groups take the most.
constexpr size_t kEntryBytesMax = size_t{1} << 20;
constexpr size_t kGroupsMax = 65'536;  // of a process, as in Linux

// Calls a function of the getpwuid_r family with a buffer that is large enough. Returns false if
// there is no such entry.
template <typename Entry, typename Look>
bool LookUp(Entry& entry, std::vector<char>& texts, const Look& look) {
  for (texts.resize(4096);; texts.resize(texts.size() * 4)) {
    Entry* found = nullptr;
    const int error = look(&entry, texts.data(), texts.size(), &found);
    if (error != ERANGE || texts.size() > kEntryBytesMax) return found != nullptr;
  }
}

}  // namespace

std::string UserName(uint32_t uid) {
  passwd entry{};
  std::vector<char> texts;
  const bool is_found =
      LookUp(entry, texts, [uid](passwd* to, char* buffer, size_t size, passwd** found) {
        return getpwuid_r(uid, to, buffer, size, found);
      });
  return is_found ? entry.pw_name : absl::StrCat(uid);
}

absl::StatusOr<uint32_t> FindGroup(const std::string& name) {
  group entry{};
  std::vector<char> texts;
  const bool is_found =
      LookUp(entry, texts, [&name](group* to, char* buffer, size_t size, group** found) {
        return getgrnam_r(name.c_str(), to, buffer, size, found);
      });
  if (!is_found) return absl::NotFoundError(absl::StrCat("there is no group '", name, "'"));
  return entry.gr_gid;
}

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
