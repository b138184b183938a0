// Packs a snapshot into one file, and unpacks it.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trainyard::backup {

inline constexpr char kPackedSuffix[] = ".tar";

// Writes all files that the manifest of a snapshot names to `path`, which appears when it is whole
// and on disk. Nothing is compressed: checkpoints do not get smaller. Returns DATA_LOSS
// (CORRUPT_FILE) if a file is missing.
absl::Status Pack(const std::string& snapshot, const std::string& path);
// Unpacks into `folder`, which exists and is empty. Returns DATA_LOSS (CORRUPT_FILE) if the file is
// damaged, as far as that is seen without the manifest.
absl::Status Unpack(const std::string& path, const std::string& folder);

}  // namespace trainyard::backup
