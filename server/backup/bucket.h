// Copies snapshots to a folder of a bucket and back. Each push is a version of an
// s3::ManifestStore, whose manifest is that of the snapshot, so a file that was sent once is not
// sent again. Databases and logs change all the time, so they are there in pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/s3/manifest_store.h"

namespace trainyard::backup {

inline constexpr char kNoBackup[] = "NO_BACKUP";
inline constexpr absl::Duration kSpare = absl::Hours(24);

struct PushResult {
  int64_t version = 0;
  int64_t sent = 0;  // files of which anything was sent; equal ones count once
  int64_t sent_bytes = 0;
  int64_t present = 0;  // files that the bucket had already
};

// The memory of a program that pushes again and again. While the newest version is its own, the
// bucket has all that this names, and is listed only now and then.
struct PushMemory {
  // The hashes, as 64 hex digits, of the manifest that it has committed last, and of the one that
  // it has tried to commit, of which it may not have heard. Empty before the first.
  std::string committed;
  std::string tried;
  absl::Time listed = absl::InfinitePast();  // when it has listed the bucket last
  // Is called before each commit, so that the program knows its versions again after a restart.
  std::function<absl::Status()> save = nullptr;
};

inline constexpr char kOtherWriter[] = "OTHER_WRITER";

// Sends what the bucket lacks of a snapshot, also if it has lost it, and makes it the newest
// version. Returns ABORTED if somebody else has made a version meanwhile, and DATA_LOSS if a file
// of the snapshot is damaged; the bucket then keeps its newest version. Returns FAILED_PRECONDITION
// (OTHER_WRITER) if the folder is one of a backup that goes on and this one ends, or the other way
// round, or if somebody else has made the newest version since this program did.
absl::StatusOr<PushResult> Push(s3::ManifestStore& bucket, const std::string& snapshot,
                                absl::Time now, PushMemory* memory = nullptr);

// Makes the folder `directory`/<time of the snapshot>/ from the newest version, to be restored from
// there. It belongs to the owner of `directory`, which is locked meanwhile. Returns the path of the
// folder, or NOT_FOUND (NO_BACKUP) if the bucket has no version, DATA_LOSS if a file in it is
// damaged, FAILED_PRECONDITION (STATE_LOCKED) if somebody else works in `directory`, and
// ALREADY_EXISTS. It leaves no folder of that name unless all is there.
absl::StatusOr<std::string> Pull(s3::ManifestStore& bucket, const std::string& directory);

// Removes all but the newest `keep` versions, and the files that no other version has. Files that
// are younger than `spare` stay, because another push may be about to use them. Returns the number
// of files.
absl::StatusOr<int64_t> PruneBucket(s3::ManifestStore& bucket, int keep, absl::Time now,
                                    absl::Duration spare = kSpare);

}  // namespace trainyard::backup
