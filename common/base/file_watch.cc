// Watches folders instead of files, since files are replaced by renames, which would end a watch.
#include "common/base/file_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace trainyard {

absl::StatusOr<FileWatch> FileWatch::Create() {
  const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "cannot create", "inotify instance");
  return FileWatch(UniqueFd(fd));
}

absl::StatusOr<int> FileWatch::Add(const std::string& directory) {
  constexpr uint32_t kEvents = IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE;
  const int folder = inotify_add_watch(fd_.get(), directory.c_str(), kEvents | IN_ONLYDIR);
  if (folder < 0) {
    // ENOSPC here means that the user's watches are used up, and not that the disk is full.
    if (errno == ENOSPC) {
      return absl::ResourceExhaustedError(
          "no inotify watches are left; see "
          "fs.inotify.max_user_watches");
    }
    return ErrnoStatus(errno, "cannot watch", directory);
  }
  return folder;
}

FileChanges FileWatch::Take() {
  alignas(inotify_event) char buffer[4096];
  FileChanges changes;
  while (true) {
    const ssize_t got = read(fd_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return changes;
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof *event + event->len);
      if ((event->mask & IN_Q_OVERFLOW) != 0) {
        changes.any_lost = true;
      } else {
        changes.folders.insert(event->wd);
      }
    }
  }
}

}  // namespace trainyard
