// Compares roles, and names them.
#include "server/access/rules.h"

namespace trainyard::access {

absl::string_view RoleText(Role role) {
  switch (role) {
    case Role::kNone:
      return "none";
    case Role::kViewer:
      return "viewer";
    case Role::kSubmitter:
      return "submitter";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      return "admin";
  }
  return "none";
}

std::optional<Role> ParseRole(absl::string_view text) {
  for (const Role role :
       {Role::kNone, Role::kViewer, Role::kSubmitter, Role::kOperator, Role::kAdmin}) {
    if (RoleText(role) == text) return role;
  }
  return std::nullopt;
}

absl::string_view RoleSourceText(RoleSource source) {
  switch (source) {
    case RoleSource::kServer:
      return "server";
    case RoleSource::kGroup:
      return "group";
    case RoleSource::kDefault:
      return "default";
    case RoleSource::kSet:
      return "set";
  }
  return "default";
}

bool RoleSuffices(const Rule& rule, const Caller& caller) {
  if (rule.party == Party::kUser) return caller.worker.empty() && caller.role >= rule.least;
  // The handler looks at the token of the invitation, which it uses up.
  if (rule.party == Party::kJoining) return caller.worker.empty();
  // The kernel or a certificate says who runs a worker. A user who acts for another one is none,
  // and whoever may submit no jobs has none for a worker.
  if (!caller.worker.empty() || caller.is_host) return caller.real_user.empty();
  return caller.real_user.empty() && caller.address.empty() && caller.role >= Role::kSubmitter;
}

}  // namespace trainyard::access
