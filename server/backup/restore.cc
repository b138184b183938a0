// Restores in a folder of its own, and renames it when it is whole.
#include "server/backup/restore.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/backup/as_owner.h"
#include "server/backup/manifest.h"
#include "server/store/sqlite/sqlite_store.h"

namespace trainyard::backup {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

absl::Status SetAttributes(const std::string& path, const FileEntry& entry) {
  // With its old time, the next backup finds that the file is as it was.
  const timespec time = {static_cast<time_t>(entry.mtime_ns / kNsPerSecond),
                         static_cast<long>(entry.mtime_ns % kNsPerSecond)};
  const timespec times[] = {time, time};
  if (chmod(path.c_str(), static_cast<mode_t>(entry.mode)) != 0 ||
      utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) {
    return ErrnoStatus(errno, "cannot set mode and time of", path);
  }
  return absl::OkStatus();
}

// Gives all of it to somebody. Only root can do that.
absl::Status GiveTo(const struct stat& owner, const std::string& staged) {
  if (geteuid() != 0) return absl::OkStatus();
  std::error_code error;
  std::vector<std::string> paths = {staged};
  for (std::filesystem::recursive_directory_iterator at(staged, error), end; !error && at != end;
       at.increment(error)) {
    paths.push_back(at->path().string());
  }
  if (error) return ErrnoStatus(error.value(), "cannot list", staged);
  for (const std::string& path : paths) {
    if (lchown(path.c_str(), owner.st_uid, owner.st_gid) != 0) {
      return ErrnoStatus(errno, "cannot give away", path);
    }
  }
  return absl::OkStatus();
}

absl::Status Fill(const RestoreOptions& options, const Manifest& manifest,
                  const std::string& staged) {
  for (const auto& [name, entry] : manifest.files) {
    const std::string from = JoinPath(options.snapshot, name);
    TY_ASSIGN_OR_RETURN(const FileEntry copied, CopyFile(from, JoinPath(staged, name)));
    if (copied.sha256 != entry.sha256) {
      return absl::DataLossError(absl::StrCat("the snapshot is damaged: '", from, "' has the hash ",
                                              copied.sha256, "; expected ", entry.sha256,
                                              "; restore another one"));
    }
    TY_RETURN_IF_ERROR(SetAttributes(JoinPath(staged, name), entry));
  }
  // The old server may have given out more numbers than the snapshot knows.
  const std::string mark =
      JoinPath(options.state_dir, absl::StrCat("trainyard.db", store::kCommittedSuffix));
  if (manifest.files.contains("trainyard.db")) {
    TY_RETURN_IF_ERROR(store::SkipGivenNumbers(JoinPath(staged, "trainyard.db"), mark));
  }
  struct stat old {};
  if (stat(options.state_dir.c_str(), &old) == 0) TY_RETURN_IF_ERROR(GiveTo(old, staged));
  return SyncFileSystem(staged);
}

absl::StatusOr<DirectoryLock> Lock(const std::string& state_dir) {
  const AsOwner owner(state_dir);
  return DirectoryLock::Acquire(state_dir);
}

}  // namespace

absl::StatusOr<RestoreResult> Restore(const RestoreOptions& options) {
  TY_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(options.snapshot));
  std::optional<DirectoryLock> lock;
  bool is_empty = true;
  if (FileExists(options.state_dir)) {
    TY_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(options.state_dir));
    is_empty = std::all_of(names.begin(), names.end(),
                           [](const std::string& name) { return name == "lock"; });
    TY_ASSIGN_OR_RETURN(DirectoryLock held, Lock(options.state_dir));
    lock.emplace(std::move(held));
    if (!is_empty && !options.replace) {
      return absl::FailedPreconditionError(
          absl::StrCat("'", options.state_dir,
                       "' is not empty; --replace moves it aside, or choose another --state_dir"));
    }
  }
  const std::string time = absl::FormatTime("%Y%m%dT%H%M%SZ", options.now, absl::UTCTimeZone());
  const std::string aside = absl::StrCat(options.state_dir, ".before-", time);
  if (FileExists(aside)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", aside, "' is there already; try again in a second"));
  }
  const std::string staged = absl::StrCat(options.state_dir, ".restoring");
  TY_RETURN_IF_ERROR(RemoveTree(staged));
  TY_RETURN_IF_ERROR(MakeDirectories(staged, 0700));
  if (const absl::Status filled = Fill(options, manifest, staged); !filled.ok()) {
    RemoveTree(staged).IgnoreError();  // the next restore removes it otherwise
    return filled;
  }
  if (lock.has_value() && is_empty) TY_RETURN_IF_ERROR(RemoveTree(options.state_dir));
  if (!is_empty && rename(options.state_dir.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot move aside", options.state_dir);
  }
  if (rename(staged.c_str(), options.state_dir.c_str()) != 0) {
    const absl::Status failed =
        ErrnoStatus(errno, "cannot put the restored folder in the place of", options.state_dir);
    if (!is_empty) (void)!rename(aside.c_str(), options.state_dir.c_str());
    return failed;
  }
  TY_RETURN_IF_ERROR(
      SyncDirectory(std::filesystem::path(options.state_dir).parent_path().string()));
  return RestoreResult{is_empty ? "" : aside, manifest.time,
                       static_cast<int64_t>(manifest.files.size())};
}

}  // namespace trainyard::backup
