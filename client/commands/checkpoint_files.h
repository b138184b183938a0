// Downloads files that the server keeps with a job, such as those of a checkpoint, into a folder.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/link/server_link.h"
#include "trainyard/v1/checkpoint.pb.h"

namespace trainyard::commands {

// Asks the server for the bytes of a file from an offset.
using OpenFileStream =
    std::function<std::unique_ptr<grpc::ClientReader<v1::DownloadCheckpointResponse>>(
        grpc::ClientContext* call, const std::string& file, int64_t offset)>;

// Downloads one file to `path`, whose folder is made. Bytes go to `path`.part until all are there,
// so that a broken download is resumed. A file that is there already, with that hash, stays.
// `shown` is its name in messages. Returns DATA_LOSS if the bytes are wrong. If there is an
// `on_bytes`, it is told the number of bytes as they come, and no message says when all are there.
absl::Status FetchFile(const Context& context, link::ServerLink& link, const OpenFileStream& open,
                       const v1::CheckpointFile& file, const std::string& path,
                       const std::string& shown,
                       const std::function<void(int64_t bytes)>& on_bytes = {});
// Asks for the files of a checkpoint. The link must outlive the result.
OpenFileStream FilesOf(link::ServerLink& link, const v1::Checkpoint& checkpoint);

// Downloads the files that `directory` does not have yet and compares every hash. MANIFEST comes
// last, so that the folder is then a checkpoint that a trainer can start from. Returns
// ALREADY_EXISTS if the folder holds another checkpoint, and DATA_LOSS if the bytes are wrong.
absl::Status FetchCheckpoint(const Context& context, link::ServerLink& link,
                             const v1::Checkpoint& checkpoint, const std::string& directory);

// Downloads a checkpoint as FetchCheckpoint does. If its bytes are not what they should be, the
// server looks at its own: a damaged checkpoint is an error that names older ones that are whole.
absl::Status FetchWholeCheckpoint(const Context& context, link::ServerLink& link,
                                  const v1::Checkpoint& checkpoint, const std::string& directory);

// Makes a new, empty folder below the system's folder for temporary files.
absl::StatusOr<std::string> MakeTemporaryDirectory();

}  // namespace trainyard::commands
