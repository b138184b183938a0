// tokens makes, lists and revokes tokens, by which users sign in from other hosts.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct CreateOptions {
  std::string user;
  std::string scope = "full";
  std::string note;
  std::string expires_in;
  std::string output_file;
};

struct ListOptions {
  std::string user;
  bool all = false;
};

struct RevokeOptions {
  std::vector<std::string> ids;
};

v1::TokenScope ScopeOf(const std::string& text) {
  if (text == "read") return v1::TOKEN_SCOPE_READ;
  if (text == "submit") return v1::TOKEN_SCOPE_SUBMIT;
  return v1::TOKEN_SCOPE_FULL;
}

std::string ScopeText(const v1::Token& token) {
  if (token.is_invitation()) {
    return token.worker().empty() ? "join" : absl::StrCat("join as ", token.worker());
  }
  switch (token.scope()) {
    case v1::TOKEN_SCOPE_READ:
      return "read";
    case v1::TOKEN_SCOPE_SUBMIT:
      return "submit";
    default:
      return "full";
  }
}

std::string EndText(const v1::Token& token, absl::Time now) {
  if (token.has_revoke_time()) return token.is_invitation() ? "used" : "revoked";
  const absl::Duration left = output::ToTime(token.expire_time()) - now;
  if (left <= absl::ZeroDuration()) return "expired";
  return absl::StrCat("in ", output::TimeLeftText(left));
}

Result CreateToken(const Context& context, const CreateOptions& options) {
  v1::CreateTokenRequest request;
  request.set_user(options.user);
  request.set_scope(ScopeOf(options.scope));
  request.set_note(options.note);
  if (!options.expires_in.empty()) {
    TY_ASSIGN_OR_RETURN(const absl::Duration lifetime, ParseDuration(options.expires_in));
    request.mutable_lifetime()->set_seconds(absl::ToInt64Seconds(lifetime));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::CreateTokenResponse made,
                      link->Call(&v1::AccessService::Stub::CreateToken, request));
  const std::string text = absl::StrCat("token ", made.token().id(), " signs in as '",
                                        made.token().user(), "' (", ScopeText(made.token()),
                                        "), and ends ", EndText(made.token(), context.clock.Now()));
  if (!options.output_file.empty()) {
    TY_RETURN_IF_ERROR(
        WriteFileAtomically(options.output_file, absl::StrCat(made.text(), "\n"), 0600));
    context.Say(absl::StrCat(text, "; it is in ", options.output_file, ", and nowhere else"));
    return link::kOk;
  }
  context.Say(absl::StrCat(text, "; it is shown this once"));
  if (!PrintOne(context, made, made.text())) {
    context.out << made.text() << "\n";
  }
  return link::kOk;
}

Result ListTokens(const Context& context, const ListOptions& options) {
  v1::ListTokensRequest request;
  request.set_user(options.user);
  request.set_all_users(options.all);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListTokensResponse response,
                      link->Call(&v1::AccessService::Stub::ListTokens, request));
  std::vector<std::string> names;
  for (const v1::Token& token : response.tokens()) names.push_back(token.id());
  if (PrintMessages(context, response.tokens(), names)) return link::kOk;
  if (response.tokens().empty()) {
    context.Say(options.all || !options.user.empty()
                    ? "no tokens; `trainyard tokens create` makes one"
                    : "you have no tokens; `trainyard tokens create` makes one, and `trainyard "
                      "tokens ls --all-users` lists those of others");
    return link::kOk;
  }
  const absl::Time now = context.clock.Now();
  Table table({{"TOKEN"}, {"USER"}, {"SCOPE"}, {"MADE"}, {"ENDS"}, {"LAST USE"}, {"NOTE"}});
  for (const v1::Token& token : response.tokens()) {
    table.AddRow({token.id(), token.user(), ScopeText(token),
                  output::AgeText(now - output::ToTime(token.create_time())), EndText(token, now),
                  token.has_last_use_time()
                      ? output::AgeText(now - output::ToTime(token.last_use_time()))
                      : "never",
                  token.note()});
  }
  context.out << table.Render();
  return link::kOk;
}

Result RevokeTokens(const Context& context, const RevokeOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& id : options.ids) {
    v1::RevokeTokenRequest request;
    request.set_id(id);
    TY_ASSIGN_OR_RETURN(const v1::Token token,
                        link->Call(&v1::AccessService::Stub::RevokeToken, request));
    context.Say(absl::StrCat("token ", token.id(), " of '", token.user(), "' is revoked"));
  }
  return link::kOk;
}

}  // namespace

void AddTokens(VerbTable& verbs) {
  verbs.Group("tokens", "Tokens, by which users sign in from other hosts");
  verbs.Add<CreateOptions>(
      "tokens create", "Make a token, and show it once", "--note laptop",
      [](client::Flags& flags, CreateOptions& options) {
        flags.Value("--user", options.user, "Its owner; only administrators make others' [you]");
        flags
            .Value("--scope", options.scope,
                   "What it permits at most: read, submit, or full, which is all that its owner "
                   "may do [full]")
            .OneOf({"read", "submit", "full"});
        flags.Value("--expires-in", options.expires_in, "Its lifetime, at most 366d [90d]");
        flags.Value("--note", options.note, "What it is for");
        flags.Value("--output-file", options.output_file,
                    "Write it to a file that only you may read, and do not show it");
      },
      CreateToken);
  verbs.Add<ListOptions>(
      "tokens ls", "List tokens, without their texts", "",
      [](client::Flags& flags, ListOptions& options) {
        flags.Value("--user", options.user, "Tokens of another user");
        flags.Switch("--all-users", options.all, "Tokens of all users, and invitations");
      },
      ListTokens);
  verbs.Add<RevokeOptions>(
      "tokens revoke", "Make tokens invalid at once", "7f3a09c2e1b4",
      [](client::Flags& flags, RevokeOptions& options) {
        flags.Words("TOKEN", options.ids, "The ids that `tokens ls` shows").Required();
      },
      RevokeTokens);
}

}  // namespace trainyard::commands
