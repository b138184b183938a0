// Changes the effective user alone, which has a way back.
#include "server/backup/as_owner.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"

namespace trainyard::backup {

AsOwner::AsOwner(const std::string& folder) {
  struct stat info {};
  if (geteuid() != 0 || stat(folder.c_str(), &info) != 0 || info.st_uid == 0) return;
  TY_CHECK(setegid(info.st_gid) == 0 && seteuid(info.st_uid) == 0);
  is_changed_ = true;
}

AsOwner::~AsOwner() {
  if (is_changed_) TY_CHECK(seteuid(0) == 0 && setegid(getgid()) == 0);
}

}  // namespace trainyard::backup
