// Downloads the files of a checkpoint from the server into a folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/link/server_link.h"
#include "trainyard/v1/checkpoint.pb.h"

namespace trainyard::commands {

// Downloads the files that `directory` does not have yet and compares every hash. MANIFEST comes
// last, so that the folder is then a checkpoint that a trainer can start from. Returns
// ALREADY_EXISTS if the folder holds another checkpoint, and DATA_LOSS if the bytes are wrong.
absl::Status FetchCheckpoint(const Context& context, link::ServerLink& link,
                             const v1::Checkpoint& checkpoint, const std::string& directory);

// Makes a new, empty folder below the system's folder for temporary files.
absl::StatusOr<std::string> MakeTemporaryDirectory();

}  // namespace trainyard::commands
