// Says who calls, and what that caller is to the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::access {

// Says what a user may do. Each role may do what those before it may.
enum class Role { kNone, kViewer, kSubmitter, kOperator, kAdmin };

// Says where a role comes from.
enum class RoleSource { kServer, kGroup, kDefault, kSet };

// The party of a call. A call has the rights of one party alone.
enum class Party {
  kUser,     // somebody with a client
  kWorker,   // a worker daemon
  kJoining,  // a worker that has a token of an invitation, and nothing else
};

// Describes who calls. The transport has proved it, and the rules have been looked up.
struct Caller {
  // The user for whom the call is made: "anna", or "1234" if the system has no name for the user.
  // For a worker, it is the user that runs the daemon, and is empty if only its certificate is
  // known.
  std::string user;
  Role role = Role::kNone;
  RoleSource role_source = RoleSource::kDefault;
  // The administrator who acts for `user`, or empty.
  std::string real_user;
  // The host of the caller, or empty if it is the server's own.
  std::string address;
  // The only worker that the caller may be, from its certificate, or empty if it has none.
  std::string worker;
  // The id of the token by which the caller has signed in, or empty.
  std::string token = {};
  // The token permits no role above this one.
  Role token_cap = Role::kAdmin;
  // When that token ends, in microseconds since 1970.
  int64_t token_end_us = 0;
  // Says which rights were looked up; streams that the caller opens later are compared with it.
  uint64_t rights_revision = 0;
  // The caller is the user that runs the server, or root. Its worker runs jobs of all users.
  bool is_host = false;
};

// Returns "viewer" and so on.
absl::string_view RoleText(Role role);
std::optional<Role> ParseRole(absl::string_view text);
// Returns "server" and so on.
absl::string_view RoleSourceText(RoleSource source);

}  // namespace trainyard::access
