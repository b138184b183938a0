// Names of Kubernetes have few characters, so that no rule needs quotes.
#include "server/kubernetes/accounts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::kubernetes {
namespace {

constexpr char kAnyName[] = "*";
constexpr size_t kSpaceBytesMax = 63;
constexpr size_t kNameBytesMax = 253;
constexpr size_t kUserBytesMax = 64;

bool IsLetterOrDigit(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c));
}

// Returns true for a label (RFC 1123), or for several with dots between.
bool IsName(absl::string_view text, size_t bytes_max, bool may_have_dots) {
  return !text.empty() && text.size() <= bytes_max &&
         std::all_of(text.begin(), text.end(), [may_have_dots](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' ||
                  (may_have_dots && c == '.');
         });
}

bool IsUser(absl::string_view text) {
  return !text.empty() && text.size() <= kUserBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-' || c == '@';
         });
}

absl::StatusOr<Account> ReadAccount(absl::string_view text, bool may_be_any) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const bool is_any = may_be_any && parts.second == kAnyName;
  if (!IsName(parts.first, kSpaceBytesMax, false) ||
      (!is_any && !IsName(parts.second, kNameBytesMax, true))) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no service account; expected NAMESPACE:NAME"));
  }
  return Account{std::string(parts.first), std::string(parts.second)};
}

}  // namespace

std::string Account::Text() const {
  return absl::StrCat(space, ":", name);
}

absl::StatusOr<Account> ParseAccount(absl::string_view text) {
  return ReadAccount(text, /*may_be_any=*/false);
}

absl::StatusOr<UserRule> ParseUserRule(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  UserRule rule;
  TY_ASSIGN_OR_RETURN(rule.account, ReadAccount(parts[0], /*may_be_any=*/parts.size() == 1));
  if (parts.size() == 1) return rule;
  if (!IsUser(parts[1])) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", parts[1],
                     "' is no user name; expected 1 to 64 letters, digits, '.', '_', '-' and "
                     "'@'"));
  }
  rule.user = std::string(parts[1]);
  return rule;
}

std::optional<Account> AccountOfUser(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "system:serviceaccount:")) return std::nullopt;
  auto account = ParseAccount(text);
  if (!account.ok()) return std::nullopt;
  return *std::move(account);
}

absl::StatusOr<std::string> UserOf(const Account& account, const std::vector<UserRule>& rules) {
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const UserRule& each) {
    return each.account.space == account.space &&
           (each.account.name == account.name || each.account.name == kAnyName);
  });
  if (rule == rules.end()) {
    return MakeError(absl::StatusCode::kPermissionDenied, "ACCOUNT_NOT_PERMITTED",
                     absl::StrCat("pods of the service account ", account.Text(),
                                  " may not sign in; an administrator permits them with "
                                  "trainyard-server --kubernetes_users ",
                                  account.Text()));
  }
  if (!rule->user.empty()) return rule->user;
  std::string user = absl::StrCat(account.name, "@", account.space);
  if (user.size() > kUserBytesMax) {
    return MakeError(absl::StatusCode::kPermissionDenied, "ACCOUNT_NAME_TOO_LONG",
                     absl::StrCat("'", user,
                                  "' is too long for the name of a user, which has at "
                                  "most 64 characters; give the account one with trainyard-server "
                                  "--kubernetes_users ",
                                  account.Text(), "=USER"));
  }
  return user;
}

absl::Status CheckMayBeWorker(const Account& account, const std::vector<Account>& rules) {
  if (std::find(rules.begin(), rules.end(), account) != rules.end()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied, "ACCOUNT_NOT_PERMITTED",
                   absl::StrCat("pods of the service account ", account.Text(),
                                " may not be workers; an administrator permits them with "
                                "trainyard-server --kubernetes_workers ",
                                account.Text()));
}

std::string ApiUrl(absl::string_view host, absl::string_view port) {
  if (host.empty() || port.empty()) return "";
  if (absl::StrContains(host, ':')) return absl::StrCat("https://[", host, "]:", port);
  return absl::StrCat("https://", host, ":", port);
}

}  // namespace trainyard::kubernetes
