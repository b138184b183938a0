// Runs `trainyard-server backup --every`, which goes on until it is told to end.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/backup/backup.h"
#include "server/bucket_flags.h"

namespace trainyard {

struct BackupLoopOptions {
  backup::BackupOptions
      backup;  // its `keep` is the number of versions in the bucket; 0 for the default
  BucketFlags bucket;
  absl::Duration every;
};

// Makes a version in the bucket whenever something has changed, until SIGINT or SIGTERM, and says
// once an hour how far the bucket was behind. The process has one thread. Returns what keeps it
// from beginning; what fails later is said, and tried again.
absl::Status BackUpUntilStopped(const BackupLoopOptions& options);

}  // namespace trainyard
