// Works beside other processes that make, lock and remove the same folder.
#include "server/backup/folder_lock.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "common/base/status_macros.h"
#include "server/backup/as_owner.h"

namespace trainyard::backup {

absl::StatusOr<DirectoryLock> LockFolder(const std::string& folder, const std::string& owner_of) {
  if (!FileExists(folder)) {
    // The owner may have no right to make it. Root makes it, and gives it away.
    const std::string parent = std::filesystem::path(folder).parent_path().string();
    if (!parent.empty()) TY_RETURN_IF_ERROR(MakeDirectories(parent, 0755));
    TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
    TY_RETURN_IF_ERROR(GiveToOwnerOf(owner_of, folder));
  }
  TY_ASSIGN_OR_RETURN(const AsOwner owner, AsOwner::Become(owner_of));
  return DirectoryLock::Acquire(folder);
}

absl::Status RemoveLocked(const std::string& folder) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  for (const std::string& name : names) {
    if (name != "lock") TY_RETURN_IF_ERROR(RemoveTree(JoinPath(folder, name)));
  }
  const std::string lock = JoinPath(folder, "lock");
  if (unlink(lock.c_str()) != 0) return ErrnoStatus(errno, "cannot remove", lock);
  // Another process may have locked the folder in between. It is the other's then.
  if (rmdir(folder.c_str()) == 0 || errno == ENOTEMPTY) return absl::OkStatus();
  return ErrnoStatus(errno, "cannot remove", folder);
}

}  // namespace trainyard::backup
