// Opens without waiting, and looks at what was opened, so that nothing can be put in its place.
#include "worker/data/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::data {
namespace {

struct OpenedFile {
  UniqueFd fd;
  int64_t size = 0;
};

absl::StatusOr<OpenedFile> Open(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO waits for whoever has its other end.
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode)) return error::NotARegularFile(path);
  return OpenedFile{std::move(fd), info.st_size};
}

absl::StatusOr<std::string> ReadAt(const OpenedFile& file, const std::string& path, int64_t offset,
                                   int64_t max_bytes) {
  const int64_t bytes = std::clamp<int64_t>(file.size - offset, 0, max_bytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = pread(file.fd.get(), text.data() + have, text.size() - have,
                              static_cast<off_t>(offset) + static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", path);
    if (got == 0) break;  // it has become shorter
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

}  // namespace

absl::StatusOr<UniqueFd> OpenDataFile(const std::string& path) {
  TY_ASSIGN_OR_RETURN(OpenedFile file, Open(path));
  return std::move(file.fd);
}

absl::StatusOr<std::string> ReadDataFile(const std::string& path, int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const OpenedFile file, Open(path));
  if (file.size > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", path, "' has ", file.size, " bytes; expected at most ", max_bytes));
  }
  return ReadAt(file, path, 0, max_bytes);
}

absl::StatusOr<std::string> ReadDataRange(const std::string& path, int64_t offset,
                                          int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const OpenedFile file, Open(path));
  return ReadAt(file, path, offset, max_bytes);
}

}  // namespace trainyard::data
