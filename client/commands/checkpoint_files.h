// Downloads the files of a checkpoint from the server into a folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/link/server_link.h"
#include "trainyard/v1/checkpoint.pb.h"

namespace trainyard::commands {

// Downloads what is not in `directory` yet and compares every hash; MANIFEST comes last, so that
// the folder is then a checkpoint that a trainer starts from. ALREADY_EXISTS where the folder holds
// another one, DATA_LOSS where the bytes are wrong.
absl::Status FetchCheckpoint(const Context& context, link::ServerLink& link,
                             const v1::Checkpoint& checkpoint, const std::string& directory);

// Makes a new, empty folder where the system keeps temporary files.
absl::StatusOr<std::string> MakeTemporaryDirectory();

}  // namespace trainyard::commands
