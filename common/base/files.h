// Files, written so that a crash leaves the old content or the new, never a part of it.
// Errors carry the path and the system's reason; ENOSPC and EDQUOT become error::DiskFull.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Status from errno: NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED or
// UNAVAILABLE, with the message `what 'path': reason`.
absl::Status ErrnoStatus(int error_number, absl::string_view what, absl::string_view path);

// An owned file descriptor; closed when destroyed.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release();

 private:
  int fd_ = -1;
};

// Opens with O_CLOEXEC.
absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags, int mode = 0644);

bool FileExists(const std::string& path);
absl::StatusOr<int64_t> FileSize(const std::string& path);

// The whole file; RESOURCE_EXHAUSTED where it is larger than `max_bytes`.
inline constexpr int64_t kReadFileMaxBytes = int64_t{1} << 30;
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t max_bytes = kReadFileMaxBytes);
// At most `max_bytes` from `offset`; empty at or past the end.
absl::StatusOr<std::string> ReadFileRange(const std::string& path, int64_t offset,
                                          int64_t max_bytes);

// Temporary name in the same folder, fsync, rename, fsync of the folder.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content,
                                 int mode = 0644);
// The same without the two fsyncs: whole, but perhaps not there after a power loss. For progress
// records.
absl::Status ReplaceFile(const std::string& path, absl::string_view content, int mode = 0644);

// All of `data`, whatever write(2) takes at a time.
absl::Status WriteFully(int fd, absl::string_view data, absl::string_view path);
absl::Status SyncDirectory(const std::string& path);

// The directory and its parents (0755, or 0700 for `mode`); fine where they exist.
absl::Status MakeDirectories(const std::string& path, int mode = 0755);
// Names in the directory, sorted, without . and ..
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
// The directory with all that is in it; fine where it does not exist.
absl::Status RemoveTree(const std::string& path);

std::string JoinPath(absl::string_view a, absl::string_view b);

// An exclusive lock (flock) on `directory`/lock, held while the object lives. FAILED_PRECONDITION
// (STATE_LOCKED, with the holder's pid) where another process holds it; PERMISSION_DENIED
// (STATE_NOT_OWNED) where the directory belongs to another user.
class DirectoryLock {
 public:
  static absl::StatusOr<DirectoryLock> Acquire(const std::string& directory);

 private:
  explicit DirectoryLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard
