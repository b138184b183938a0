// Asks without a lock, because the system may take long to answer.
#include "server/runtime/system_users.h"

#include "common/base/system_accounts.h"

namespace trainyard::runtime {

void SystemUsers::Learn(const std::vector<std::string>& users) {
  for (const std::string& user : users) {
    const auto account = FindSystemAccount(user);
    std::vector<gid_t> groups;
    if (account.ok()) groups = GroupsOf(*account);
    const MutexLock lock(&mutex_);
    if (account.ok()) {
      peers_[user] =
          access::PeerOf({account->uid, {groups.begin(), groups.end()}, account->name}, roles_);
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
