// Writes checkpoints completely or not at all: files are written and synced in a temporary folder,
// then MANIFEST with names, sizes and hashes, then the folder is renamed to step-<n> and its parent
// synced. A folder without a valid MANIFEST is no checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/manifest.h"

namespace trainyard::checkpoint {

// One file of a checkpoint: "model.safetensors", "optimizer.safetensors", "state.json".
struct CheckpointFile {
  std::string name;
  std::string content;
};

// Writes `<checkpoints_dir>/step-<step>` by way of `step-<step>.tmp`. It replaces no valid
// checkpoint: it returns OK at once if that step is complete already, and writes a damaged one
// again. Returns RESOURCE_EXHAUSTED (DISK_FULL) if the disk is full. After any failure the other
// checkpoints are unchanged and the temporary folder is gone. There may be only one writer at a
// time, since it removes the temporary folders of its dead predecessors. step >= 0; names must be
// plain.
absl::Status WriteCheckpoint(const std::string& checkpoints_dir, int64_t step,
                             const std::vector<CheckpointFile>& files);

// Makes a checkpoint of what another program has written: a folder of files, or one file. It is
// moved, so `written` must lie on the file system of `checkpoints_dir`. A checkpoint of that step
// stays as it is. Returns INVALID_ARGUMENT for a folder that is empty or has anything but folders
// and files with plain names, RESOURCE_EXHAUSTED for too many of them or a full disk (DISK_FULL),
// and ALREADY_EXISTS. What was written then stays where it is.
absl::Status AdoptCheckpoint(const std::string& checkpoints_dir, int64_t step,
                             const std::string& written);

// Reads the manifest and compares every size and hash. No file may be missing or added. Returns
// NOT_FOUND if there is no such folder, and DATA_LOSS (CORRUPT_FILE) with the file and the
// difference.
absl::StatusOr<Manifest> VerifyCheckpoint(const std::string& checkpoint_dir);

// Returns the steps of the complete folders, those with a readable MANIFEST, in ascending order.
// Incomplete ones are skipped. Hashes are not compared.
std::vector<int64_t> ListCheckpoints(const std::string& checkpoints_dir);
// Finds the newest checkpoint that verifies, and skips damaged ones (path and reason of each are
// appended to `damaged`). Returns NOT_FOUND if none verifies.
struct LatestCheckpoint {
  int64_t step = 0;
  std::string path;
};
absl::StatusOr<LatestCheckpoint> FindLatestValid(const std::string& checkpoints_dir,
                                                 std::vector<std::string>& damaged);

std::string CheckpointPath(const std::string& checkpoints_dir, int64_t step);

}  // namespace trainyard::checkpoint
