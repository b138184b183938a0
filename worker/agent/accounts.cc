// Adds to an account of the system what acting as its user needs.
#include "worker/agent/accounts.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/system_accounts.h"

namespace trainyard::agent {
namespace {

Account MakeAccount(const SystemAccount& known) {
  Account account{.name = known.name, .home = known.home, .shell = known.shell, .owner = {}};
  if (known.uid != geteuid()) {
    account.owner = {
        .is_self = false, .uid = known.uid, .gid = known.gid, .groups = GroupsOf(known)};
  }
  return account;
}

}  // namespace

absl::StatusOr<Account> FindAccount(const std::string& name) {
  const auto known = FindSystemAccount(name);
  if (known.ok()) return MakeAccount(*known);
  if (!absl::IsNotFound(known.status())) return known.status();
  return error::OwnerRefused(absl::StrCat("this host has no account '", name, "'"));
}

Account AccountOf(uid_t uid, gid_t gid) {
  if (const auto known = FindSystemAccount(uid); known.ok()) return MakeAccount(*known);
  Account bare{.name = absl::StrCat(uid), .home = "/", .shell = "/bin/sh", .owner = {}};
  if (uid != geteuid()) bare.owner = {.is_self = false, .uid = uid, .gid = gid, .groups = {gid}};
  return bare;
}

Account NobodysAccount() {
  constexpr uid_t kNobody = 65'534;  // also where no account has that name
  const auto known = FindSystemAccount("nobody");
  return known.ok() && known->uid != 0 ? MakeAccount(*known) : AccountOf(kNobody, kNobody);
}

}  // namespace trainyard::agent
