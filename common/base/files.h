// Reads files, and writes them so that a crash leaves the old content or the new, never a part of
// it. Errors carry the path and the system's reason; ENOSPC and EDQUOT become error::DiskFull.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Makes a status from errno: NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED or
// UNAVAILABLE, with the message `what 'path': reason`.
absl::Status ErrnoStatus(int error_number, absl::string_view what, absl::string_view path);

// Owns a file descriptor, and closes it when destroyed.
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

// Opens a file with O_CLOEXEC.
absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags, int mode = 0644);

// Opens a file that somebody else may have put there, with O_CLOEXEC. Returns FAILED_PRECONDITION
// (NOT_A_REGULAR_FILE) for a symbolic link, a FIFO, a device or a folder, and never waits for
// another process. A path that leads through a process (/proc/<pid>/cwd) is refused too.
absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& path, int flags, int mode = 0644);

bool FileExists(const std::string& path);
absl::StatusOr<int64_t> FileSize(const std::string& path);

// Returns the whole file, or RESOURCE_EXHAUSTED if it is larger than `max_bytes`.
inline constexpr int64_t kReadFileMaxBytes = int64_t{1} << 30;
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t max_bytes = kReadFileMaxBytes);
// Returns at most `max_bytes` from `offset`. The result is empty at the end of the file and past
// it.
absl::StatusOr<std::string> ReadFileRange(const std::string& path, int64_t offset,
                                          int64_t max_bytes);
// These read as the two above do, but only what OpenRegularFile opens.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            int64_t max_bytes = kReadFileMaxBytes);
absl::StatusOr<std::string> ReadRegularFileRange(const std::string& path, int64_t offset,
                                                 int64_t max_bytes);

// Replaces a file so that the new content survives a power loss: writes a temporary file in the
// same folder, syncs it, renames it, and syncs the folder.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content,
                                 int mode = 0644);
// Replaces a file as WriteFileAtomically does, but without the two fsyncs. The file is always
// complete, but may be missing after a power loss. It is meant for records of progress.
absl::Status ReplaceFile(const std::string& path, absl::string_view content, int mode = 0644);

// Writes all of `data`, in as many calls of write(2) as it takes.
absl::Status WriteFully(int fd, absl::string_view data, absl::string_view path);
absl::Status SyncDirectory(const std::string& path);

// Creates the directory and its parents with mode 0755, or with `mode`. They may exist already.
absl::Status MakeDirectories(const std::string& path, int mode = 0755);
// Returns the sorted names in the directory, without . and ..
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
// Returns the sorted names of everything in the directory and in the folders below it that is no
// folder, with those folders before them: "a/b". Symbolic links are not followed. Returns
// RESOURCE_EXHAUSTED if there are more than `max`.
absl::StatusOr<std::vector<std::string>> ListTree(const std::string& path, size_t max);
// Removes the directory with all that is in it. It need not exist.
absl::Status RemoveTree(const std::string& path);

std::string JoinPath(absl::string_view a, absl::string_view b);

// Returns OK if only this process's user and root can change what is in the directory. Otherwise
// returns PERMISSION_DENIED: STATE_NOT_OWNED if it belongs to somebody else, STATE_NOT_PRIVATE if
// its group or others may write there.
absl::Status CheckPrivateDirectory(const std::string& directory);

// Holds an exclusive lock (flock) on `directory`/lock while it lives. Acquire returns
// FAILED_PRECONDITION (STATE_LOCKED, with the holder's pid) if another process holds the lock, and
// what CheckPrivateDirectory returns.
class DirectoryLock {
 public:
  static absl::StatusOr<DirectoryLock> Acquire(const std::string& directory);

 private:
  explicit DirectoryLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard
