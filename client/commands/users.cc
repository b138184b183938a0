// users lists, sets and removes roles of users.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/verbs.h"
#include "client/output/roles.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct SetUserOptions {
  std::string name;
  std::string role;
};

struct DeleteUsersOptions {
  std::vector<std::string> names;
};

Result ListUsers(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListUsersResponse response,
                      link->Call(&v1::AccessService::Stub::ListUsers, v1::ListUsersRequest()));
  if (PrintResources(context, response.users())) return link::kOk;
  if (response.users().empty()) {
    context.Say(
        "no roles were set; all users have those that the server's flags give. `trainyard whoami` "
        "shows yours");
    return link::kOk;
  }
  Table table({{"USER"}, {"ROLE"}, {"SET BY"}, {"SET"}});
  for (const v1::User& user : response.users()) {
    table.AddRow({user.name(), output::RoleText(user.role()), user.actor(),
                  output::AgeText(context.clock.Now() - output::ToTime(user.set_time()))});
  }
  context.out << table.Render();
  return link::kOk;
}

Result SetUser(const Context& context, const SetUserOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::SetUserRequest request;
  request.set_name(options.name);
  request.set_role(output::ParseRole(options.role));
  TY_ASSIGN_OR_RETURN(const v1::User user, link->Call(&v1::AccessService::Stub::SetUser, request));
  context.Say(absl::StrCat("'", user.name(), "' is ", output::RoleText(user.role()), " now"));
  PrintOne(context, user, user.name());
  return link::kOk;
}

Result DeleteUsers(const Context& context, const DeleteUsersOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.names) {
    v1::DeleteUserRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::AccessService::Stub::DeleteUser, request).status());
    context.Say(absl::StrCat("'", name, "' has the role that the server's flags give"));
  }
  return link::kOk;
}

}  // namespace

void AddUsers(VerbTable& verbs) {
  verbs.Group("users", "Roles of users");
  verbs.Add("users ls", "List the users whose roles were set", "", ListUsers);
  verbs.Add<SetUserOptions>(
      "users set", "Set the role of a user", "anna --role operator",
      [](client::Flags& flags, SetUserOptions& options) {
        flags.Word("USER", options.name, "Name of the user, as in the system").Required();
        flags.Value("--role", options.role, "none, viewer, submitter, operator or admin")
            .OneOf(output::RoleTexts())
            .Required();
      },
      SetUser);
  verbs.Add<DeleteUsersOptions>(
      "users rm", "Forget the roles that were set for users", "anna",
      [](client::Flags& flags, DeleteUsersOptions& options) {
        flags.Words("USER", options.names, "Names of users").Required();
      },
      DeleteUsers);
}

}  // namespace trainyard::commands
