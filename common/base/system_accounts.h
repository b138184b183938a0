// Asks this host's database of accounts, which may be on the network, by the calls that threads may
// make at the same time.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard {

struct SystemAccount {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string home;
  std::string shell;
};

// These return NOT_FOUND if there is no such account, and UNAVAILABLE or another error if the
// database does not answer.
absl::StatusOr<SystemAccount> FindSystemAccount(const std::string& name);
absl::StatusOr<SystemAccount> FindSystemAccount(uid_t uid);
// Returns all groups of the account, its own among them.
std::vector<gid_t> GroupsOf(const SystemAccount& account);

// Returns the name of the user, such as "anna", or its number if the system has none.
std::string UserName(uid_t uid);
// Returns the number of a group, or NOT_FOUND.
absl::StatusOr<gid_t> FindGroup(const std::string& name);

}  // namespace trainyard
