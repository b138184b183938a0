// Asks the system's account database, which may be on the network, by the calls that threads may
// make at the same time.
#include "worker/agent/accounts.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {
namespace {

// An entry of the database has a few hundred bytes. A group has names of thousands of members.
constexpr size_t kEntryBytesMax = 1 << 20;
constexpr int kGroupsMax = 65536;  // NGROUPS_MAX of Linux

std::vector<gid_t> GroupsOf(const char* name, gid_t gid) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  while (getgrouplist(name, gid, groups.data(), &count) < 0 && count <= kGroupsMax) {
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(std::min<int>(count, static_cast<int>(groups.size()))));
  return groups;
}

Account MakeAccount(const passwd& entry) {
  Account account;
  account.name = entry.pw_name;
  account.home = entry.pw_dir;
  account.shell = entry.pw_shell;
  if (entry.pw_uid == geteuid()) return account;
  account.owner.is_self = false;
  account.owner.uid = entry.pw_uid;
  account.owner.gid = entry.pw_gid;
  account.owner.groups = GroupsOf(entry.pw_name, entry.pw_gid);
  return account;
}

// Makes the call with a buffer that is large enough. `Call` is called with the entry, the buffer
// and where the result goes. Returns nothing if there is no such account.
template <typename Call>
absl::StatusOr<std::optional<Account>> Ask(Call call) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(1024);
  int failed = call(&entry, buffer, &found);
  while (failed == ERANGE && buffer.size() < kEntryBytesMax) {
    buffer.resize(buffer.size() * 2);
    failed = call(&entry, buffer, &found);
  }
  if (found != nullptr) return MakeAccount(entry);
  // These are what systems without the entry return, besides 0.
  const bool is_absent = failed == 0 || failed == ENOENT || failed == ESRCH || failed == EPERM;
  if (is_absent) return std::nullopt;
  return ErrnoStatus(failed, "cannot ask for an account", "passwd");
}

}  // namespace

absl::StatusOr<Account> FindAccount(const std::string& name) {
  TY_ASSIGN_OR_RETURN(std::optional<Account> account,
                      Ask([&name](passwd* entry, std::vector<char>& buffer, passwd** found) {
                        return getpwnam_r(name.c_str(), entry, buffer.data(), buffer.size(), found);
                      }));
  if (account.has_value()) return *std::move(account);
  return error::OwnerRefused(absl::StrCat("this host has no account '", name, "'"));
}

Account AccountOf(uid_t uid, gid_t gid) {
  auto account = Ask([uid](passwd* entry, std::vector<char>& buffer, passwd** found) {
    return getpwuid_r(uid, entry, buffer.data(), buffer.size(), found);
  });
  if (account.ok() && account->has_value()) return **std::move(account);
  Account bare{.name = absl::StrCat(uid), .home = "/", .shell = "/bin/sh", .owner = {}};
  if (uid != geteuid()) bare.owner = {.is_self = false, .uid = uid, .gid = gid, .groups = {gid}};
  return bare;
}

std::string OwnUserName() {
  return AccountOf(geteuid(), getegid()).name;
}

}  // namespace trainyard::agent
