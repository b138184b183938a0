// Reads CIFAR-10 from an archive of JPEGs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/memory_dataset.h"

namespace trainyard::data {

// Decodes train/<class>/<index>.jpg or test/<class>/<index>.jpg of a tar archive, plain or .zst, in
// order of the index, and fills in all but the digest. Returns DATA_LOSS (CORRUPT_FILE) with
// archive, member, position and value.
absl::StatusOr<MemoryDataset::Content> ReadCifarJpegs(const std::string& archive_path, Split split);

}  // namespace trainyard::data
