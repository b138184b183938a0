// Locks folders that are made for the work in them, and perhaps removed after it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard::backup {

// Locks a folder as the owner of `owner_of` does. Makes it for the owner alone if there is none;
// folders above it, which others may use too, are open to all. Returns what DirectoryLock::Acquire
// returns.
absl::StatusOr<DirectoryLock> LockFolder(const std::string& folder, const std::string& owner_of);

// Removes a folder that the caller has locked. The lock itself goes last, so that nobody begins to
// work in a folder that is being removed.
absl::Status RemoveLocked(const std::string& folder);

}  // namespace trainyard::backup
