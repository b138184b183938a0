// Copies snapshots to a folder of a bucket and back. Each push is a version of an
// s3::ManifestStore, whose manifest is that of the snapshot, so a file that was sent once is not
// sent again.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/s3/manifest_store.h"

namespace trainyard::backup {

struct PushResult {
  int64_t version = 0;
  int64_t sent = 0;  // files
  int64_t sent_bytes = 0;
  int64_t present = 0;  // files that the bucket had already
};

// Sends what the bucket lacks of a snapshot, also if it has lost it, and makes it the newest
// version. Returns ABORTED if somebody else has made a version meanwhile, and DATA_LOSS if a file
// of the snapshot is damaged; the bucket then keeps its newest version.
absl::StatusOr<PushResult> Push(s3::ManifestStore& bucket, const std::string& snapshot,
                                absl::Time now);

// Makes the folder `directory`/<time of the snapshot>/ from the newest version, to be restored from
// there. It belongs to the owner of `directory`, which is locked meanwhile. Returns the path of the
// folder, or NOT_FOUND if the bucket has no version, DATA_LOSS if a file in it is damaged,
// FAILED_PRECONDITION (STATE_LOCKED) if somebody else works in `directory`, and ALREADY_EXISTS. It
// leaves no folder of that name unless all is there.
absl::StatusOr<std::string> Pull(s3::ManifestStore& bucket, const std::string& directory);

// Removes all but the newest `keep` versions, and the files that no other version has. Files of the
// last day stay, because another push may be about to use them. Returns the number of files.
absl::StatusOr<int64_t> PruneBucket(s3::ManifestStore& bucket, int keep, absl::Time now);

}  // namespace trainyard::backup
