// Restores in a folder of its own, and renames it when it is whole.
#include "server/backup/restore.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/backup/as_owner.h"
#include "server/backup/folder_lock.h"
#include "server/backup/manifest.h"
#include "server/backup/packed.h"
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

absl::Status MoveFile(const std::string& from, const std::string& to) {
  TY_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(to).parent_path().string(), 0700));
  if (rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "cannot move", from);
  return absl::OkStatus();
}

absl::Status Fill(const RestoreOptions& options, const Manifest& manifest,
                  const std::string& staged) {
  for (const auto& [name, entry] : manifest.files) {
    const std::string from = JoinPath(options.snapshot, name);
    if (options.takes_files) {
      TY_RETURN_IF_ERROR(MoveFile(from, JoinPath(staged, name)));
      TY_RETURN_IF_ERROR(SetAttributes(JoinPath(staged, name), entry));
      continue;
    }
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
  TY_RETURN_IF_ERROR(GiveToOwnerOf(options.state_dir, staged));
  return SyncFileSystem(staged);
}

// Two renames, between which there is no state directory.
absl::Status MoveInTwoSteps(const std::string& staged, const std::string& state_dir,
                            const std::string& aside) {
  if (rename(state_dir.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot move aside", state_dir);
  }
  if (rename(staged.c_str(), state_dir.c_str()) == 0) return absl::OkStatus();
  const absl::Status failed =
      ErrnoStatus(errno, "cannot put the restored folder in the place of", state_dir);
  (void)!rename(aside.c_str(), state_dir.c_str());
  return failed;
}

// Puts `staged` in the place of the state directory, which becomes `aside`. A restore that is
// killed must leave the old one where nobody removes it, so `staged` gets that name before both are
// exchanged.
absl::Status Exchange(const std::string& staged, const std::string& state_dir,
                      const std::string& aside) {
  if (rename(staged.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename", staged);
  }
  if (renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, state_dir.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  const int failed = errno;
  if (rename(aside.c_str(), staged.c_str()) != 0) return ErrnoStatus(errno, "cannot rename", aside);
  // Some file systems, as NFS, do not exchange folders.
  if (failed == EINVAL || failed == ENOSYS || failed == EOPNOTSUPP) {
    return MoveInTwoSteps(staged, state_dir, aside);
  }
  return ErrnoStatus(failed, "cannot put the restored folder in the place of", state_dir);
}

absl::StatusOr<RestoreResult> RestoreFolder(const RestoreOptions& options, bool is_empty) {
  TY_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(options.snapshot));
  const std::string time = absl::FormatTime("%Y%m%dT%H%M%SZ", options.now, absl::UTCTimeZone());
  const std::string aside =
      absl::StrCat(options.state_dir, is_empty ? ".empty" : absl::StrCat(".before-", time));
  if (is_empty) TY_RETURN_IF_ERROR(RemoveTree(aside));
  if (FileExists(aside)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", aside, "' is there already; try again in a second"));
  }
  const std::string staged = absl::StrCat(options.state_dir, ".restoring");
  TY_RETURN_IF_ERROR(RemoveTree(staged));
  TY_RETURN_IF_ERROR(MakeDirectories(staged, 0700));
  absl::Status restored = Fill(options, manifest, staged);
  if (restored.ok()) restored = Exchange(staged, options.state_dir, aside);
  if (!restored.ok()) {
    RemoveTree(staged).IgnoreError();  // the next restore removes it otherwise
    return restored;
  }
  TY_RETURN_IF_ERROR(
      SyncDirectory(std::filesystem::path(options.state_dir).parent_path().string()));
  if (is_empty) TY_RETURN_IF_ERROR(RemoveTree(aside));
  return RestoreResult{is_empty ? "" : aside, manifest.time,
                       static_cast<int64_t>(manifest.files.size())};
}

absl::StatusOr<RestoreResult> RestoreFile(RestoreOptions options, bool is_empty) {
  const std::string unpacked = absl::StrCat(options.state_dir, ".unpacked");
  TY_RETURN_IF_ERROR(RemoveTree(unpacked));
  TY_RETURN_IF_ERROR(MakeDirectories(unpacked, 0700));
  const absl::Status status = Unpack(options.snapshot, unpacked);
  options.snapshot = unpacked;
  auto restored = status.ok() ? RestoreFolder(options, is_empty) : status;
  RemoveTree(unpacked).IgnoreError();  // the next restore removes it otherwise
  return restored;
}

// Returns true if the state directory is empty, and FAILED_PRECONDITION if what is there must stay.
// The caller has locked it.
absl::StatusOr<bool> MayReplace(const RestoreOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(options.state_dir));
  const bool is_empty = std::all_of(names.begin(), names.end(),
                                    [](const std::string& name) { return name == "lock"; });
  if (is_empty || options.replace) return is_empty;
  return absl::FailedPreconditionError(
      absl::StrCat("'", options.state_dir,
                   "' is not empty; --replace moves it aside, or choose another --state_dir"));
}

// The caller has locked the state directory.
absl::StatusOr<RestoreResult> RestoreLocked(const RestoreOptions& options) {
  TY_ASSIGN_OR_RETURN(const bool is_empty, MayReplace(options));
  return std::filesystem::is_directory(options.snapshot) ? RestoreFolder(options, is_empty)
                                                         : RestoreFile(options, is_empty);
}

}  // namespace

absl::Status CheckRestorable(const RestoreOptions& options) {
  if (!FileExists(options.state_dir)) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, LockFolder(options.state_dir, options.state_dir));
  return MayReplace(options).status();
}

absl::StatusOr<RestoreResult> Restore(const RestoreOptions& options) {
  const bool is_new = !FileExists(options.state_dir);
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, LockFolder(options.state_dir, options.state_dir));
  auto restored = RestoreLocked(options);
  if (!restored.ok() && is_new) RemoveLocked(options.state_dir).IgnoreError();
  return restored;
}

}  // namespace trainyard::backup
