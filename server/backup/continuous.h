// Copies a state directory to a bucket again and again while its server runs, so that the bucket is
// never far behind: a server whose host is lost goes on elsewhere with all but the last seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/s3/manifest_store.h"
#include "server/backup/backup.h"
#include "server/backup/bucket.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {

struct ContinuousOptions {
  // Its directory is a folder for the newest snapshot alone, which is there for the links to it and
  // for what is remembered of the bucket, and its `keep` does not count.
  BackupOptions backup;
  std::string place;  // of the bucket, for messages, and to know the memory of another one
  int versions = 10;  // that stay in the bucket; about as many more as there are changes in an hour
};

// The rounds of one program. It is not thread-safe, and borrows the bucket and the clock.
class Continuous {
 public:
  struct Round {
    std::optional<PushResult> pushed;  // nothing if nothing has changed
    absl::Status pruned;               // what became of the removal of old versions, if it was due
    std::vector<std::string> lost;     // as in BackupResult
    // A commit at the worst moment was only in the state directory for so long: since this program
    // looked the time before.
    absl::Duration behind;
  };

  Continuous(ContinuousOptions options, s3::ManifestStore& bucket, Clock& clock);

  // Makes a snapshot, and a version of it if anything has changed. The caller holds the lock of
  // LockSnapshots. Returns what Backup and Push return, and FAILED_PRECONDITION if the directory
  // has the snapshots of other backups, which would be lost. The next round makes up for one that
  // has failed.
  absl::StatusOr<Round> Turn(const DirectoryLock& lock);

 private:
  std::string MemoryPath() const;
  absl::Status ReadMemory();
  absl::Status SaveMemory() const;
  absl::StatusOr<BackupResult> MakeSnapshot(const DirectoryLock& lock);

  ContinuousOptions options_;
  s3::ManifestStore& bucket_;
  Clock& clock_;
  bool is_begun_ = false;
  CopiedDatabases databases_;
  PushMemory memory_;
  std::optional<std::map<std::string, FileEntry>> pushed_;  // the files of the newest version
  absl::Time looked_;  // when the last round that has succeeded began
  absl::Time pruned_ = absl::InfinitePast();
};

// Returns how long the program waits after a round that took `took`: rounds begin `every` so often,
// and take at most half of the time.
absl::Duration PauseAfter(absl::Duration took, absl::Duration every);

}  // namespace trainyard::backup
