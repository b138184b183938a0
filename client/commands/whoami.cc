// whoami says who the server thinks the caller is, and what that user may do.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/verbs.h"
#include "client/output/roles.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// Returns what the role permits, in a few words.
std::string MeaningOf(v1::Role role) {
  switch (role) {
    case v1::ROLE_VIEWER:
      return "sees jobs and workers, and changes nothing";
    case v1::ROLE_SUBMITTER:
      return "submits jobs, and changes its own";
    case v1::ROLE_OPERATOR:
      return "changes jobs of all users, workers, quotas, reservations and projects";
    case v1::ROLE_ADMIN:
      return "does everything, sets roles, and acts for others";
    default:
      return "may do nothing; ask whoever runs the server for a role";
  }
}

std::string SourceText(const std::string& source) {
  if (source == "server") return "as the user that runs the server, or root";
  if (source == "group") return "by a group of the system";
  if (source == "set") return "set by an administrator";
  return "as everybody has it";
}

Result WhoAmI(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::WhoAmIResponse who,
                      link->Call(&v1::AccessService::Stub::WhoAmI, v1::WhoAmIRequest()));
  if (PrintOne(context, who, who.user())) return link::kOk;
  context.out << "user    " << who.user();
  if (!who.real_user().empty()) context.out << ", for whom '" << who.real_user() << "' acts";
  context.out << "\nrole    " << output::RoleText(who.role()) << ", "
              << SourceText(who.role_source()) << "\n        " << MeaningOf(who.role())
              << "\nserver  " << link->address() << ", version " << who.server_version() << "\n";
  return link::kOk;
}

}  // namespace

void AddWhoAmI(VerbTable& verbs) {
  verbs.Add("whoami", "Show who you are to the server, and what you may do", "", WhoAmI);
}

}  // namespace trainyard::commands
