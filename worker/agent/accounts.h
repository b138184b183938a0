// Looks up the accounts of this host. Names mean what this host's account database says, whatever
// they mean on the server's.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "worker/agent/file_owner.h"

namespace trainyard::agent {

struct Account {
  std::string name;
  std::string home;
  std::string shell;
  FileOwner owner;
};

// Returns NOT_FOUND (OWNER_REFUSED) if this host has no such account, and UNAVAILABLE if its
// database does not answer.
absl::StatusOr<Account> FindAccount(const std::string& name);

// Returns the account to which a file of `uid` and `gid` belongs. Of a user who has none any more
// it knows these two only.
Account AccountOf(uid_t uid, gid_t gid);

// Returns the account without rights, "nobody".
Account NobodysAccount();

}  // namespace trainyard::agent
