// Removes folders with a bounded number of descriptors, however deep they are.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard {
namespace {

// Each level holds a descriptor while it is emptied.
constexpr int kLevelsMax = 32;

// Empties one tree. Folders below the last level are moved to its top, and are emptied from there.
// Links are removed and never followed, whatever their owner does meanwhile.
class TreeRemover {
 public:
  explicit TreeRemover(int top) : top_(top) {}

  // Returns 0, or the number of the first error; what can be removed is removed nevertheless.
  int Run() {
    do {
      has_moved_ = false;
      Empty(UniqueFd(openat(top_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), 1);
    } while (has_moved_ && error_ == 0);
    return error_;
  }

 private:
  void Note(int error) {
    if (error_ == 0 && error != ENOENT) error_ = error;
  }

  void Empty(UniqueFd fd, int level) {
    DIR* const stream = fd.valid() ? fdopendir(fd.get()) : nullptr;
    if (stream == nullptr) return Note(errno);
    const int folder = fd.release();  // it is closed with the stream
    const auto close = absl::MakeCleanup([stream] { closedir(stream); });
    while (const dirent* entry = readdir(stream)) {
      const char* const name = entry->d_name;
      if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
      if (unlinkat(folder, name, 0) == 0) continue;
      if (errno != EISDIR) {
        Note(errno);
        continue;
      }
      if (level == kLevelsMax) {
        Move(folder, name);
        continue;
      }
      Empty(UniqueFd(openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
            level + 1);
      if (unlinkat(folder, name, AT_REMOVEDIR) != 0) Note(errno);
    }
  }

  void Move(int folder, const char* name) {
    // A name that is taken is that of an older folder of the tree, so the next one is tried.
    for (int tries = 0; tries < 1000; ++tries) {
      const std::string moved = absl::StrCat("moved-", ++moved_);
      if (renameat2(folder, name, top_, moved.c_str(), RENAME_NOREPLACE) == 0) {
        has_moved_ = true;
        return;
      }
      if (errno != EEXIST) break;
    }
    Note(errno);
  }

  const int top_;
  int64_t moved_ = 0;
  bool has_moved_ = false;
  int error_ = 0;
};

}  // namespace

absl::Status RemoveTree(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno != EISDIR) return ErrnoStatus(errno, "cannot remove", path);
  const UniqueFd top(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top.valid()) return ErrnoStatus(errno, "cannot remove", path);
  if (const int error = TreeRemover(top.get()).Run(); error != 0) {
    return ErrnoStatus(error, "cannot remove", path);
  }
  if (rmdir(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "cannot remove", path);
}

}  // namespace trainyard
