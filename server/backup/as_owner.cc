// Changes the effective user alone, which has a way back.
#include "server/backup/as_owner.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "common/base/check.h"
#include "common/base/files.h"

namespace trainyard::backup {

absl::StatusOr<AsOwner> AsOwner::Become(const std::string& folder) {
  struct stat info {};
  if (geteuid() != 0 || stat(folder.c_str(), &info) != 0 || info.st_uid == 0) return AsOwner(false);
  if (setegid(info.st_gid) != 0) {
    return ErrnoStatus(errno, "cannot act as the group of the folder", folder);
  }
  AsOwner owner(true);  // which goes back if the rest fails
  if (seteuid(info.st_uid) != 0) {
    return ErrnoStatus(errno, "cannot act as the owner of the folder", folder);
  }
  return owner;
}

AsOwner::~AsOwner() {
  // The saved user and the real group are the old ones, so there is always a way back.
  if (is_changed_) TY_CHECK(seteuid(0) == 0 && setegid(getgid()) == 0);
}

absl::Status GiveToOwnerOf(const std::string& owner_of, const std::string& folder) {
  struct stat owner {};
  if (geteuid() != 0 || stat(owner_of.c_str(), &owner) != 0) return absl::OkStatus();
  std::error_code error;
  std::vector<std::string> paths = {folder};
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    paths.push_back(at->path().string());
  }
  if (error) return ErrnoStatus(error.value(), "cannot list", folder);
  for (const std::string& path : paths) {
    if (lchown(path.c_str(), owner.st_uid, owner.st_gid) != 0) {
      return ErrnoStatus(errno, "cannot give away", path);
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::backup
