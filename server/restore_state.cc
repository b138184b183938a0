// Fetches beside the state directory, so that files need only be moved.
#include "server/restore_state.h"

#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "server/backup/bucket.h"
#include "server/backup/folder_lock.h"
#include "server/backup/manifest.h"

namespace trainyard {
namespace {

absl::Status RestoreFrom(const backup::RestoreOptions& options) {
  TY_ASSIGN_OR_RETURN(const backup::RestoreResult restored, backup::Restore(options));
  std::cout << options.state_dir << " is as it was at " << restored.time << ", with "
            << FilesText(restored.files) << "; start the server\n";
  if (!restored.aside.empty()) std::cout << "The old one is in " << restored.aside << "\n";
  return absl::OkStatus();
}

std::string FetchedDirectory(const std::string& state_dir) {
  return absl::StrCat(state_dir, ".fetched");
}

// Removes what a restore that was killed has left, unless another one is at work there.
absl::Status RemoveFetched(const std::string& directory) {
  if (!FileExists(directory)) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::Acquire(directory));
  return backup::RemoveLocked(directory);
}

// Fetches the newest version to a folder beside the state directory, which goes in the end.
absl::Status RestoreFromBucket(backup::RestoreOptions options, BucketFlags flags) {
  flags.place = options.snapshot;
  TY_RETURN_IF_ERROR(backup::CheckRestorable(options));
  TY_ASSIGN_OR_RETURN(const OpenedBucket bucket, OpenBucket(flags, /*is_for_writing=*/false));
  const std::string directory = FetchedDirectory(options.state_dir);
  TY_RETURN_IF_ERROR(RemoveFetched(directory));
  const auto fetched = backup::Pull(*bucket.store, directory);
  absl::Status status = fetched.status();
  if (status.ok()) {
    std::cout << flags.place << ":" << AgeOf(*fetched, options.now) << "\n";
    options.snapshot = *fetched;
    options.takes_files = true;
    status = RestoreFrom(options);
  }
  RemoveTree(directory).IgnoreError();  // the next restore removes it otherwise
  return status;
}

}  // namespace

bool IsInBucket(absl::string_view snapshot) {
  return absl::StartsWith(snapshot, "s3://");
}

std::string FilesText(int64_t count) {
  return absl::StrCat(FormatCount(count), count == 1 ? " file" : " files");
}

std::string AgeOf(const std::string& snapshot, absl::Time now) {
  const auto manifest = backup::ReadManifest(snapshot);
  const auto time = manifest.ok() ? backup::TimeOf(*manifest) : std::nullopt;
  if (!time.has_value()) return "";
  return absl::StrCat(" It is of ", manifest->time, ", ", DurationText(now - *time), " ago.");
}

absl::Status RunRestore(const RestoreFlags& flags) {
  if (flags.if_lost && FileExists(JoinPath(flags.options.state_dir, "trainyard.db"))) {
    std::cout << flags.options.state_dir << " is there, so nothing is restored\n";
    return RemoveFetched(FetchedDirectory(flags.options.state_dir));
  }
  const absl::Status status = IsInBucket(flags.options.snapshot)
                                  ? RestoreFromBucket(flags.options, flags.bucket)
                                  : RestoreFrom(flags.options);
  if (!flags.if_lost || ErrorReason(status) != backup::kNoBackup) return status;
  std::cout << flags.options.snapshot << " has no backup yet, so the server begins anew\n";
  return absl::OkStatus();
}

}  // namespace trainyard
