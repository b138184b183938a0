// Restores in a folder of its own, and renames it when it is whole.
#include "server/backup/restore.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/backup/manifest.h"
#include "server/store/sqlite/sqlite_store.h"

namespace trainyard::backup {
namespace {

absl::Status Verify(const std::string& snapshot, const Manifest& manifest) {
  for (const auto& [name, entry] : manifest.files) {
    const std::string damage = DamageOf(snapshot, name, entry);
    if (!damage.empty()) {
      return absl::DataLossError(
          absl::StrCat("the snapshot is damaged: ", damage, "; restore another one"));
    }
  }
  return absl::OkStatus();
}

absl::Status Fill(const RestoreOptions& options, const Manifest& manifest,
                  const std::string& staged) {
  for (const auto& [name, entry] : manifest.files) {
    TY_ASSIGN_OR_RETURN(const FileEntry copied,
                        CopyFile(JoinPath(options.snapshot, name), JoinPath(staged, name)));
    if (copied.sha256 != entry.sha256) {
      return absl::DataLossError(
          absl::StrCat("'", name, "' of the snapshot has changed while it was restored"));
    }
  }
  // The old server may have given out more numbers than the snapshot knows.
  const std::string mark =
      JoinPath(options.state_dir, absl::StrCat("trainyard.db", store::kCommittedSuffix));
  if (manifest.files.contains("trainyard.db")) {
    TY_RETURN_IF_ERROR(store::SkipGivenNumbers(JoinPath(staged, "trainyard.db"), mark));
  }
  return SyncFolders(staged);
}

}  // namespace

absl::StatusOr<std::string> Restore(const RestoreOptions& options) {
  TY_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(options.snapshot));
  std::optional<DirectoryLock> lock;
  bool is_empty = true;
  if (FileExists(options.state_dir)) {
    TY_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(options.state_dir));
    is_empty = std::all_of(names.begin(), names.end(),
                           [](const std::string& name) { return name == "lock"; });
    TY_ASSIGN_OR_RETURN(DirectoryLock held, DirectoryLock::Acquire(options.state_dir));
    lock.emplace(std::move(held));
    if (!is_empty && !options.replace) {
      return absl::FailedPreconditionError(
          absl::StrCat("'", options.state_dir,
                       "' is not empty; --replace moves it aside, or choose another --state_dir"));
    }
  }
  TY_RETURN_IF_ERROR(Verify(options.snapshot, manifest));
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
    return ErrnoStatus(errno, "cannot put the restored folder in the place of", options.state_dir);
  }
  TY_RETURN_IF_ERROR(
      SyncDirectory(std::filesystem::path(options.state_dir).parent_path().string()));
  return is_empty ? std::string() : aside;
}

}  // namespace trainyard::backup
