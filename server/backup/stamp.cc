// Works as the owner of the state directory, who may be another user than root.
#include "server/backup/stamp.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/files.h"
#include "server/backup/as_owner.h"

namespace trainyard::backup {

void Stamp(const std::string& state_dir, absl::string_view kind) {
  const auto owner = AsOwner::Become(state_dir);
  const std::string folder = JoinPath(state_dir, "backups");
  if (!owner.ok() || !MakeDirectories(folder, 0700).ok()) return;
  const auto file = OpenFile(JoinPath(folder, std::string(kind)), O_WRONLY | O_CREAT, 0600);
  if (file.ok()) (void)!futimens(file->get(), nullptr);
}

}  // namespace trainyard::backup
