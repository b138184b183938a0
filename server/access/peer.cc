// Maps users and groups of the system to roles.
#include "server/access/peer.h"

#include <algorithm>

namespace trainyard::access {

Peer PeerOf(const LocalProcess& process, const RoleMap& roles) {
  const auto is_in = [&process](int64_t group) {
    return std::any_of(process.groups.begin(), process.groups.end(),
                       [group](uint32_t own) { return int64_t{own} == group; });
  };
  Peer peer;
  peer.user = process.user;
  peer.is_host = process.uid == 0 || process.uid == roles.server_uid;
  if (peer.is_host) {
    peer.role = Role::kAdmin;
    peer.role_source = RoleSource::kServer;
  } else if (is_in(roles.admin_group)) {
    peer.role = Role::kAdmin;
    peer.role_source = RoleSource::kGroup;
  } else if (is_in(roles.operator_group)) {
    peer.role = Role::kOperator;
    peer.role_source = RoleSource::kGroup;
  } else {
    peer.role = roles.default_role;
  }
  return peer;
}

}  // namespace trainyard::access
