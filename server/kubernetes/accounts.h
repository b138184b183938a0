// Reads the rules that say which service accounts of a cluster mean anything here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::kubernetes {

// A service account.
struct Account {
  std::string space;  // its namespace
  std::string name;

  // Returns NAMESPACE:NAME.
  std::string Text() const;
  friend bool operator==(const Account&, const Account&) = default;
};

// Says for which user pods of an account speak.
struct UserRule {
  Account account;  // its name may be "*", for all accounts of the namespace
  // Empty for a user of the account's own: NAME@NAMESPACE.
  std::string user = {};

  friend bool operator==(const UserRule&, const UserRule&) = default;
};

// Reads NAMESPACE:NAME. Returns INVALID_ARGUMENT for what cannot be the name of an account.
absl::StatusOr<Account> ParseAccount(absl::string_view text);
// Reads NAMESPACE:NAME, NAMESPACE:NAME=USER or NAMESPACE:*.
absl::StatusOr<UserRule> ParseUserRule(absl::string_view text);
// Reads the name by which Kubernetes calls an account as a user, system:serviceaccount:SPACE:NAME.
// Returns nothing for other users of a cluster.
std::optional<Account> AccountOfUser(absl::string_view text);

// Returns for which user an account speaks, by the first rule that fits. Returns PERMISSION_DENIED
// if none does (ACCOUNT_NOT_PERMITTED), or if the account's own user would have no name that is
// one (ACCOUNT_NAME_TOO_LONG).
absl::StatusOr<std::string> UserOf(const Account& account, const std::vector<UserRule>& rules);
// Returns PERMISSION_DENIED (ACCOUNT_NOT_PERMITTED) if no rule names the account.
absl::Status CheckMayBeWorker(const Account& account, const std::vector<Account>& rules);

// Returns https://HOST:PORT of what Kubernetes writes into the environment of each pod, or "" if
// either is empty.
std::string ApiUrl(absl::string_view host, absl::string_view port);

}  // namespace trainyard::kubernetes
