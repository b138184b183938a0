// Copies a state directory while its server runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/files.h"

namespace trainyard::backup {

// The databases as they were when the newest snapshot was made. A program that makes one after the
// other keeps it, and the next snapshot has a link to a database that nobody has written to since.
struct CopiedDatabases {
  // Sizes and times of a database and of its write-ahead log.
  struct Look {
    int64_t size = 0;
    int64_t mtime_ns = 0;
    int64_t log_size = 0;
    int64_t log_mtime_ns = 0;

    friend bool operator==(const Look&, const Look&) = default;
  };
  std::string snapshot;  // the path of the newest
  std::map<std::string, Look> looks;
};

struct BackupOptions {
  std::string state_dir;
  std::string directory;  // of all snapshots
  int keep = 0;           // complete snapshots that stay, with the new one; 0 keeps all
  absl::Time now;
  // Tests change the state directory in these.
  std::function<void()> before_databases = nullptr;
  std::function<void()> after_databases = nullptr;
  CopiedDatabases* databases = nullptr;  // null for a program that makes one snapshot
  bool is_synced = true;                 // the snapshot is on disk in the end
  // Files that are named by their hashes may be links to those of the state directory, which saves
  // a copy where both are on one file system. Damage would then be in both.
  bool shares_files = false;
};

struct BackupResult {
  std::string snapshot;
  int64_t copied = 0;  // files
  int64_t linked = 0;  // files that are the same as in the snapshot before
  std::vector<std::string> removed;
  std::vector<std::string> unreadable;  // says of newer snapshots why nothing was linked to them
  // Files that the database names and that the state directory has lost. They are not in the
  // snapshot either, so no older one, which may have them, was removed.
  std::vector<std::string> lost;
};

// Makes the folder of all snapshots for the owner of the state directory, if there is none, and
// locks it. Returns FAILED_PRECONDITION (STATE_LOCKED) if another backup to it runs, and NOT_FOUND
// if there is no state directory.
absl::StatusOr<DirectoryLock> LockSnapshots(const BackupOptions& options);

// Makes `directory`/<time>/. The caller has locked the folder, and holds the lock for as long as it
// needs the snapshot: another backup may remove it. Whatever fails, older snapshots stay whole and
// no half one has such a name. Returns DATA_LOSS if a database is damaged, and RESOURCE_EXHAUSTED
// (DISK_FULL).
absl::StatusOr<BackupResult> Backup(const BackupOptions& options, const DirectoryLock& lock);

// Returns the names of the complete snapshots, the oldest first.
absl::StatusOr<std::vector<std::string>> ListSnapshots(const std::string& directory);

}  // namespace trainyard::backup
