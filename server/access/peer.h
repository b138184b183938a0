// Says who is at the other end of a connection, as the transport proves it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/access/caller.h"

namespace trainyard::access {

struct Peer {
  // The user of the process, or empty if the transport does not say it.
  std::string user = {};
  // The role that the system gives this user. What was set for the user goes before it.
  Role role = Role::kNone;
  RoleSource role_source = RoleSource::kDefault;
  // See Caller.
  std::string address = {};
  std::string worker = {};
  // The time from which the certificate of the worker is valid.
  absl::Time certificate_begin = {};
  bool is_host = false;
};

// A process of this host, as the kernel describes it.
struct LocalProcess {
  uint32_t uid = 0;
  std::vector<uint32_t> groups;  // all of them
  std::string user;              // the name of the user, or its number
};

// Says which roles the system gives. A group that does not exist is -1.
struct RoleMap {
  uint32_t server_uid = 0;
  int64_t admin_group = -1;
  int64_t operator_group = -1;
  Role default_role = Role::kSubmitter;
};

// Returns the peer on a socket of this host.
Peer PeerOf(const LocalProcess& process, const RoleMap& roles);

}  // namespace trainyard::access
