// Describes a snapshot: a folder with all files of a state directory at one time, and their hashes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/s3/manifest_store.h"

namespace trainyard::backup {

// The file of a snapshot that lists all others.
inline constexpr char kManifestName[] = "manifest.json";
// The largest manifest, which is read into memory, sent to a bucket at once, and has some 250 bytes
// for each file.
inline constexpr int64_t kManifestBytesMax = s3::ManifestStore::kManifestBytesMax;
inline constexpr size_t kFilesMax = 6'000'000;
// All databases of a state directory, in the order in which they are copied. Remarks, sweeps and
// notifications name jobs by their numbers, so they come before the jobs: a number that the copy of
// trainyard.db does not know would be given to another job. What jobs refer to comes after them.
inline constexpr const char* kDatabases[] = {"remarks.db",   "sweeps.db",  "notify.db",
                                             "trainyard.db", "metrics.db", "access.db",
                                             "secrets.db",   "specs.db",   "providers.db"};

// A bucket has a file that changes all the time in pieces of this size, of which the last may be
// shorter, so that only those that have changed are sent again.
inline constexpr int64_t kPieceBytes = int64_t{256} << 10;

struct FileEntry {
  int64_t size = 0;
  int mode = 0600;
  int64_t mtime_ns = 0;  // of the source
  std::string sha256;    // "sha256:<64 hex digits>"
  // The hashes of the pieces, as 64 hex digits each, if a bucket has the file in pieces; else
  // empty.
  std::vector<std::string> pieces = {};
};

struct Manifest {
  std::string server_version;
  std::string time;
  int64_t revision = 0;
  std::map<std::string, FileEntry> files;  // by path in the snapshot
  // It is a version of a backup that goes on, beside which no other one writes.
  bool is_continuous = false;
};

// Reads the manifest of a snapshot. Returns NOT_FOUND if the folder has none, DATA_LOSS
// (CORRUPT_FILE) if it is damaged, and FAILED_PRECONDITION if a newer server wrote it.
absl::StatusOr<Manifest> ReadManifest(const std::string& snapshot);
// Reads the text of a manifest. `path` is for messages.
absl::StatusOr<Manifest> ParseManifest(const std::string& text, const std::string& path);
std::string TextOf(const Manifest& manifest);
// Returns RESOURCE_EXHAUSTED for a manifest of more than `bytes_max`, which nobody could read.
absl::Status WriteManifest(const std::string& snapshot, const Manifest& manifest,
                           int64_t bytes_max = kManifestBytesMax);

// Returns the time of the snapshot, or nothing if the manifest does not say it.
std::optional<absl::Time> TimeOf(const Manifest& manifest);
// Returns the path of a checkpoint file by its hash, or INVALID_ARGUMENT.
absl::StatusOr<std::string> BlobName(const std::string& hash);
// Copies a file, without a sync. Returns what was copied, with its hash.
absl::StatusOr<FileEntry> CopyFile(const std::string& from, const std::string& to);
// Returns size, mode and time of a file, without a hash.
absl::StatusOr<FileEntry> Look(const std::string& path);
// Returns what is wrong with a file of a snapshot, or an empty text.
std::string DamageOf(const std::string& snapshot, const std::string& name, const FileEntry& entry);
// Returns OK if a file of a snapshot is there with its size, and DATA_LOSS (CORRUPT_FILE) if not.
// It does not read the file.
absl::Status CheckSize(const std::string& snapshot, const std::string& name,
                       const FileEntry& entry);
// Syncs the whole file system of a folder, which costs far less than a sync of each of its files.
absl::Status SyncFileSystem(const std::string& folder);

}  // namespace trainyard::backup
