// Keeps the copies of checkpoints in a folder of a bucket. Each is a version of an
// s3::ManifestStore of its own:
//
//   checkpoints/owner                     the id of the server that writes here
//   checkpoints/<job>/<step>/...          the copy of a checkpoint
//
// The manifest of a copy describes its files by name, and is written after all of them, so a copy
// that has a manifest is whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/s3/client.h"
#include "common/s3/manifest_store.h"
#include "server/core/lifecycle/records.h"

namespace trainyard::runtime {

// Returns "checkpoints/12", the name of the folder with the copies of a job.
std::string CopyFolderName(JobId job);
// Returns "checkpoints/12/600", the name of the copy in the folder.
std::string CopyName(const core::CheckpointRef& id);

// The folder. It is thread-safe, and borrows the client.
class CopyFolder {
 public:
  // `prefix` is that of a Location, and `conditions` is what s3::Probe says.
  CopyFolder(s3::Client& client, std::string prefix, s3::Conditions conditions)
      : client_(client), prefix_(std::move(prefix)), conditions_(conditions) {}

  // Makes the server the owner of the folder, unless it is already. Returns FAILED_PRECONDITION
  // (BUCKET_FOLDER_TAKEN) if another one is, whose jobs have the same numbers.
  absl::Status Claim(const std::string& server_id);

  struct File {
    std::string path;
    s3::Blob blob;
  };
  // Sends what the bucket lacks of a checkpoint, and then the manifest. `sent_bytes` grows as files
  // are sent.
  absl::Status Send(const core::CheckpointRef& id, const std::vector<File>& files,
                    const std::string& manifest, std::atomic<int64_t>& sent_bytes);

  // Reading stops there, so that a store whose lists never end does not keep us for ever.
  static constexpr int64_t kObjectsMax = 50'000'000;
  // Returns the copies of a job, or all of them. The value is true for those that have a manifest.
  // Returns RESOURCE_EXHAUSTED for more than `objects_max` objects, as s3::CountOf counts them.
  absl::StatusOr<std::map<core::CheckpointRef, bool>> List(std::optional<JobId> job,
                                                           int64_t objects_max = kObjectsMax);
  // Returns true if the copy has a manifest.
  absl::StatusOr<bool> IsWhole(const core::CheckpointRef& id);
  // Removes a copy, the manifest first.
  absl::Status Remove(const core::CheckpointRef& id);

 private:
  s3::Client& client_;
  const std::string prefix_;
  const s3::Conditions conditions_;
};

}  // namespace trainyard::runtime
