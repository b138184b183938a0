// Writes the manifest of a checkpoint in a bucket, from which another server can go on.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "server/core/lifecycle/records.h"
#include "server/rpc/services.h"

namespace trainyard::rpc {

// The newest format of a CopiedCheckpoint.
inline constexpr int kCopyFormat = 1;

// Returns a CopiedCheckpoint as JSON. `digests` has the SHA-256 of each file by its name.
absl::StatusOr<std::string> DescribeCopy(const core::CheckpointRecord& checkpoint,
                                         const std::map<std::string, std::string>& digests,
                                         const Services& services);

}  // namespace trainyard::rpc
