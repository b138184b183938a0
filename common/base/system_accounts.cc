// Repeats each call with a larger buffer until the entry has room.
#include "common/base/system_accounts.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard {
namespace {

// An entry has a few hundred bytes. That of a group has the names of all its members.
constexpr size_t kEntryBytesMax = size_t{1} << 20;
constexpr int kGroupsMax = 65'536;  // NGROUPS_MAX of Linux

// Calls `look(entry, text, size, found)`, a function of the getpwnam_r family, until its texts have
// room in `texts`. Returns NOT_FOUND if there is no such entry.
template <typename Entry, typename Look>
absl::Status LookUp(Entry& entry, std::vector<char>& texts, const std::string& what,
                    const Look& look) {
  Entry* found = nullptr;
  int failed = ERANGE;
  for (size_t size = 1024; failed == ERANGE && size <= kEntryBytesMax; size *= 2) {
    texts.resize(size);
    failed = look(&entry, texts.data(), texts.size(), &found);
  }
  if (found != nullptr) return absl::OkStatus();
  // These are what systems without the entry return, besides 0.
  const bool is_absent = failed == 0 || failed == ENOENT || failed == ESRCH || failed == EPERM;
  if (is_absent) return absl::NotFoundError(absl::StrCat("there is no ", what));
  return ErrnoStatus(failed, "cannot ask for", what);
}

template <typename Look>
absl::StatusOr<SystemAccount> FindAccount(const std::string& what, const Look& look) {
  passwd entry{};
  std::vector<char> texts;
  const absl::Status found = LookUp(entry, texts, what, look);
  if (!found.ok()) return found;
  return SystemAccount{entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell};
}

}  // namespace

absl::StatusOr<SystemAccount> FindSystemAccount(const std::string& name) {
  return FindAccount(absl::StrCat("account '", name, "'"),
                     [&name](passwd* entry, char* texts, size_t size, passwd** found) {
                       return getpwnam_r(name.c_str(), entry, texts, size, found);
                     });
}

absl::StatusOr<SystemAccount> FindSystemAccount(uid_t uid) {
  return FindAccount(absl::StrCat("account of uid ", uid),
                     [uid](passwd* entry, char* texts, size_t size, passwd** found) {
                       return getpwuid_r(uid, entry, texts, size, found);
                     });
}

std::vector<gid_t> GroupsOf(const SystemAccount& account) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  while (getgrouplist(account.name.c_str(), account.gid, groups.data(), &count) < 0 &&
         count <= kGroupsMax) {
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(std::min<int>(count, static_cast<int>(groups.size()))));
  return groups;
}

std::string UserName(uid_t uid) {
  const auto account = FindSystemAccount(uid);
  return account.ok() ? account->name : absl::StrCat(uid);
}

absl::StatusOr<gid_t> FindGroup(const std::string& name) {
  group entry{};
  std::vector<char> texts;
  const absl::Status found = LookUp(entry, texts, absl::StrCat("group '", name, "'"),
                                    [&name](group* to, char* buffer, size_t size, group** result) {
                                      return getgrnam_r(name.c_str(), to, buffer, size, result);
                                    });
  if (!found.ok()) return found;
  return entry.gr_gid;
}

}  // namespace trainyard
