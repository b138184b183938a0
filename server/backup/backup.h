// Copies a state directory while its server runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainyard::backup {

struct BackupOptions {
  std::string state_dir;
  std::string directory;  // of all snapshots
  int keep = 0;           // complete snapshots that stay, with the new one; 0 keeps all
  absl::Time now;
};

struct BackupResult {
  std::string snapshot;
  int64_t copied = 0;  // files
  int64_t linked = 0;  // files that are the same as in the snapshot before
  std::vector<std::string> removed;
};

// Makes `directory`/<time>/. Whatever fails, older snapshots stay whole and no half one has such a
// name. Returns FAILED_PRECONDITION (STATE_LOCKED) if another backup to `directory` runs, DATA_LOSS
// if a database is damaged, and RESOURCE_EXHAUSTED (DISK_FULL).
absl::StatusOr<BackupResult> Backup(const BackupOptions& options);

// Returns the names of the complete snapshots, the oldest first.
absl::StatusOr<std::vector<std::string>> ListSnapshots(const std::string& directory);

}  // namespace trainyard::backup
