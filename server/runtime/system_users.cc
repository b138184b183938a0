// Calls getpwnam_r and getgrouplist.
#include "server/runtime/system_users.h"

#include <grp.h>
#include <pwd.h>
#include <sys/types.h>

#include <cerrno>

namespace trainyard::runtime {
namespace {

constexpr int kGroupsOfUserMax = 65'536;  // as in Linux
constexpr size_t kUserTextMax = size_t{1} << 20;

// Returns false if the system has no such user.
bool LookUpUser(const std::string& user, access::LocalProcess& process) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> texts(4096);
  int error = 0;
  while ((error = getpwnam_r(user.c_str(), &entry, texts.data(), texts.size(), &found)) == ERANGE &&
         texts.size() < kUserTextMax) {
    texts.resize(texts.size() * 4);
  }
  if (error != 0 || found == nullptr) return false;
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  if (getgrouplist(user.c_str(), entry.pw_gid, groups.data(), &count) < 0 && count > 0 &&
      count <= kGroupsOfUserMax) {
    groups.resize(static_cast<size_t>(count));
    if (getgrouplist(user.c_str(), entry.pw_gid, groups.data(), &count) < 0) count = 0;
  }
  process.uid = entry.pw_uid;
  process.user = user;
  process.groups.assign(groups.begin(), groups.begin() + count);
  return true;
}

}  // namespace

void SystemUsers::Learn(const std::vector<std::string>& users) {
  for (const std::string& user : users) {
    access::LocalProcess process;
    const bool is_known = LookUpUser(user, process);
    const MutexLock lock(&mutex_);
    if (is_known) {
      peers_[user] = access::PeerOf(process, roles_);
    } else {
      peers_.erase(user);
    }
  }
}

access::Peer SystemUsers::Find(const std::string& user) const {
  {
    const MutexLock lock(&mutex_);
    const auto found = peers_.find(user);
    if (found != peers_.end()) return found->second;
  }
  access::Peer peer;
  peer.user = user;
  peer.role = roles_.default_role;
  return peer;
}

}  // namespace trainyard::runtime
