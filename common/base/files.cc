// Reads and writes files. Every write that must survive a crash goes to a temporary file beside its
// target, which it then replaces by a rename. Calls that a signal interrupts are made again.
#include "common/base/files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/full_disk.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

std::string ReserveOf(const std::string& path) {
  return path + ".reserve";
}

// Makes a file under a name that others can guess. What stands there is removed and never opened:
// it is a file that a process of the same pid has left, or a trap.
absl::StatusOr<UniqueFd> CreateAnew(const std::string& path, int mode) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL;
  auto fd = OpenFile(path, kFlags, mode);
  if (!absl::IsAlreadyExists(fd.status())) return fd;
  unlink(path.c_str());
  return OpenFile(path, kFlags, mode);
}

// Gives `path` its content by way of `temporary`, which stays if that fails.
absl::Status WriteTemporary(const std::string& temporary, const std::string& path,
                            absl::string_view content, int mode, bool durable) {
  TY_ASSIGN_OR_RETURN(UniqueFd fd, CreateAnew(temporary, mode));
  TY_RETURN_IF_ERROR(WriteFully(fd.get(), content, path));
  if (durable && fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", temporary);
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", path);
  }
  return absl::OkStatus();
}

// Writes to the space that was set aside. The file that is replaced becomes the next reserve.
absl::Status WriteReserve(const std::string& path, absl::string_view content, bool durable) {
  const std::string reserve = ReserveOf(path);
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegularFile(reserve, O_WRONLY));
  TY_RETURN_IF_ERROR(WriteFully(fd.get(), content, path));
  if (ftruncate(fd.get(), static_cast<off_t>(content.size())) != 0) {
    return ErrnoStatus(errno, "cannot truncate", reserve);
  }
  if (durable && fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", reserve);
  int rc = renameat2(AT_FDCWD, reserve.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE);
  // There may be no file yet, or the file system may not exchange files.
  if (rc != 0) rc = rename(reserve.c_str(), path.c_str());
  return rc == 0 ? absl::OkStatus() : ErrnoStatus(errno, "cannot rename to", path);
}

absl::Status WriteAndRename(const std::string& path, absl::string_view content, int mode,
                            bool durable) {
  // The pid keeps two processes that replace the same file from using the same temporary name.
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  absl::Status written = WriteTemporary(temporary, path, content, mode, durable);
  if (!written.ok()) unlink(temporary.c_str());
  if (IsDiskFull(written) && FileExists(ReserveOf(path))) {
    written = WriteReserve(path, content, durable);
  }
  TY_RETURN_IF_ERROR(written);
  if (!durable) return absl::OkStatus();
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

absl::StatusOr<std::string> ReadRange(int fd, const std::string& path, int64_t offset,
                                      int64_t max_bytes) {
  std::string content;
  constexpr int64_t kBlock = 256 << 10;
  while (static_cast<int64_t>(content.size()) < max_bytes) {
    const size_t old_size = content.size();
    const auto want = std::min<int64_t>(kBlock, max_bytes - static_cast<int64_t>(old_size));
    content.resize(old_size + static_cast<size_t>(want));
    const ssize_t got = pread(fd, content.data() + old_size, static_cast<size_t>(want),
                              offset + static_cast<int64_t>(old_size));
    const int read_errno = errno;
    content.resize(old_size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && read_errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(read_errno, "cannot read", path);
    if (got == 0) break;
  }
  return content;
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path, int64_t max_bytes) {
  // We read to the end rather than to the size, because files grow, and files in /proc have no
  // size.
  TY_ASSIGN_OR_RETURN(std::string content, ReadRange(fd, path, 0, max_bytes + 1));
  if (static_cast<int64_t>(content.size()) > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", path, "' is larger than the limit of ", max_bytes, " bytes"));
  }
  return content;
}

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view what, absl::string_view path) {
  const std::string message =
      absl::StrCat(what, " '", path, "': ", std::generic_category().message(error_number));
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return Annotate(error::DiskFull(path), what);
    case ENOENT:
      return absl::NotFoundError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

bool IsDiskFull(const absl::Status& status) {
  return ErrorReason(status) == "DISK_FULL";
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

int UniqueFd::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags, int mode) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return ErrnoStatus(errno, "cannot open", path);
  return UniqueFd(fd);
}

absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& path, int flags, int mode) {
  // Without O_NONBLOCK, opening a FIFO waits for whoever has its other end.
  flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? static_cast<uint64_t>(mode) : 0;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  UniqueFd fd(static_cast<int>(syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
  // Kernels before 5.6, and some containers, do not have the call.
  if (!fd.valid() && (errno == ENOSYS || errno == EPERM)) {
    fd = UniqueFd(open(path.c_str(), flags, mode));
  }
  const int open_errno = errno;
  struct stat info {};
  const bool is_trap = !fd.valid() && (open_errno == ELOOP || open_errno == ENXIO);
  if (!fd.valid() && !is_trap) return ErrnoStatus(open_errno, "cannot open", path);
  if (is_trap || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return error::NotARegularFile(path);
  }
  return fd;
}

bool FileExists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

absl::StatusOr<int64_t> FileSize(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path);
  return info.st_size;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY));
  return ReadAll(fd.get(), path, max_bytes);
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(path, O_RDONLY));
  return ReadAll(fd.get(), path, max_bytes);
}

absl::StatusOr<std::string> ReadFileRange(const std::string& path, int64_t offset,
                                          int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY));
  return ReadRange(fd.get(), path, offset, max_bytes);
}

absl::StatusOr<std::string> ReadRegularFileRange(const std::string& path, int64_t offset,
                                                 int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(path, O_RDONLY));
  return ReadRange(fd.get(), path, offset, max_bytes);
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content, int mode) {
  return WriteAndRename(path, content, mode, /*durable=*/true);
}

absl::Status ReplaceFile(const std::string& path, absl::string_view content, int mode) {
  return WriteAndRename(path, content, mode, /*durable=*/false);
}

absl::Status ReserveSpace(const std::string& path, int64_t bytes) {
  const std::string reserve = ReserveOf(path);
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(reserve, O_WRONLY | O_CREAT));
  const int failed = posix_fallocate(fd.get(), 0, bytes);
  return failed == 0 ? absl::OkStatus() : ErrnoStatus(failed, "cannot reserve space for", path);
}

absl::Status WriteFully(int fd, absl::string_view data, absl::string_view path) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "cannot write", path);
    }
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY | O_DIRECTORY));
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path, int mode) {
  for (size_t end = path.find('/', 1); true; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), static_cast<mode_t>(mode)) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, "cannot create directory", part);
    }
    if (end == std::string::npos) break;
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path);
  if (!S_ISDIR(info.st_mode)) return ErrnoStatus(ENOTDIR, "cannot create directory", path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), "cannot list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::vector<std::string>> ListTree(const std::string& path, size_t max) {
  std::vector<std::string> names;
  std::vector<std::string> folders = {""};  // each but the top ends with a slash
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    const std::string opened = folder.empty() ? path : JoinPath(path, folder);
    std::error_code error;
    for (std::filesystem::directory_iterator it(opened, error), end; !error && it != end;
         it.increment(error)) {
      std::error_code ignored;
      const std::string name = folder + it->path().filename().string();
      if (it->is_directory(ignored) && !it->is_symlink(ignored)) {
        folders.push_back(absl::StrCat(name, "/"));
        continue;
      }
      if (names.size() >= max) {
        return absl::ResourceExhaustedError(
            absl::StrCat("'", path, "' has more than ", max, " files"));
      }
      names.push_back(name);
    }
    // Somebody may remove a folder that was just listed, as a server does with logs.
    const bool is_gone = error.value() == ENOENT && !folder.empty();
    if (error && !is_gone) return ErrnoStatus(error.value(), "cannot list", opened);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string JoinPath(absl::string_view a, absl::string_view b) {
  if (a.empty() || (!b.empty() && b.front() == '/')) return std::string(b);
  return a.back() == '/' ? absl::StrCat(a, b) : absl::StrCat(a, "/", b);
}

absl::Status CheckPrivateDirectory(const std::string& directory) {
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot stat", directory);
  if (info.st_uid != geteuid()) {
    return error::StateNotOwned(directory, info.st_uid, geteuid());
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return error::StateNotPrivate(directory, static_cast<int>(info.st_mode & 07777));
  }
  return absl::OkStatus();
}

absl::StatusOr<DirectoryLock> DirectoryLock::Acquire(const std::string& directory) {
  TY_RETURN_IF_ERROR(CheckPrivateDirectory(directory));
  const std::string path = JoinPath(directory, "lock");
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegularFile(path, O_RDWR | O_CREAT, 0600));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "cannot lock", path);
    const auto holder = ReadFile(path, 64);
    return error::StateLocked(directory, holder.ok() && !holder->empty()
                                             ? absl::StrCat("process ", *holder)
                                             : std::string("another process"));
  }
  // The process that held it may have removed the file with the whole directory. A lock on a file
  // that has no name any more locks nobody out.
  struct stat locked {};
  struct stat named {};
  if (fstat(fd.get(), &locked) != 0 || lstat(path.c_str(), &named) != 0 ||
      locked.st_dev != named.st_dev || locked.st_ino != named.st_ino) {
    return error::StateLocked(directory, "a process that is just ending");
  }
  if (ftruncate(fd.get(), 0) != 0) return ErrnoStatus(errno, "cannot truncate", path);
  TY_RETURN_IF_ERROR(WriteFully(fd.get(), absl::StrCat(getpid()), path));
  return DirectoryLock(std::move(fd));
}

}  // namespace trainyard
