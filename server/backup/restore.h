// Makes a state directory from a snapshot.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainyard::backup {

struct RestoreOptions {
  std::string snapshot;  // the folder, or a file that Pack has made
  std::string state_dir;
  bool replace = false;  // moves a state directory that is not empty aside
  absl::Time now;
  // Files are moved out of the snapshot, a folder on the file system of the state directory whose
  // hashes the caller has just checked. This takes no second place.
  bool takes_files = false;
};

struct RestoreResult {
  std::string aside;  // the path to which the old state directory was moved, or empty
  std::string time;   // of the snapshot
  int64_t files = 0;
};

// Verifies the whole snapshot, copies it beside the state directory, and exchanges the two in one
// step, so that there is always one of them. All of it belongs to the owner of the old state
// directory, if there is one. Returns DATA_LOSS if the snapshot is damaged, FAILED_PRECONDITION if
// a server or another restore uses the state directory (STATE_LOCKED) or if it is not empty and
// `replace` is not set. Nothing is changed then.
// Returns FAILED_PRECONDITION as Restore would, for whoever has to fetch a snapshot first.
absl::Status CheckRestorable(const RestoreOptions& options);

absl::StatusOr<RestoreResult> Restore(const RestoreOptions& options);

}  // namespace trainyard::backup
