// Makes a state directory from a snapshot, or from the newest version in a bucket.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/backup/restore.h"
#include "server/bucket_flags.h"

namespace trainyard {

struct RestoreFlags {
  backup::RestoreOptions options;
  BucketFlags bucket;
  bool if_lost = false;
};

// Returns true for s3://BUCKET/FOLDER, which is no path.
bool IsInBucket(absl::string_view snapshot);

// Restores, and tells what was done.
absl::Status RunRestore(const RestoreFlags& flags);

// Returns a sentence that says how old a snapshot is, since that is what is lost with the host.
std::string AgeOf(const std::string& snapshot, absl::Time now);
// Returns "1 file" or "12 files".
std::string FilesText(int64_t count);

}  // namespace trainyard
