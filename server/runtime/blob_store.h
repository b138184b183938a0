// Files of checkpoints, by content: <dir>/blobs/<2 hex>/<32 hex>. They grow in <dir>/uploads under
// names made of numbers, and move once size and hash are right, so that a blob is always whole.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "server/core/lifecycle/records.h"

namespace trainyard::runtime {

// A checkpoint on its way.
struct UploadId {
  AttemptId attempt;
  int64_t step = 0;
};

// Thread-safe; blocks on the disk.
class BlobStore {
 public:
  static constexpr int64_t kFileBytesMax = int64_t{1} << 40;

  // Makes the folders.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(std::string dir);

  // Appends `data`, which starts at `offset`, and answers with the offset at which to go on,
  // durable up to there; `file.size` at once where a blob of that hash is here already. Bytes that
  // are there are passed over. OUT_OF_RANGE (OFFSET_MISMATCH) for a gap, INVALID_ARGUMENT for bytes
  // past `file.size` or a hash that is none, RESOURCE_EXHAUSTED (DISK_FULL).
  absl::StatusOr<int64_t> Append(const UploadId& upload, const core::CheckpointFile& file,
                                 int64_t offset, absl::string_view data);

  // Verifies size and hash of all files and makes them blobs. What it returns keeps them where they
  // are until the row that names them is committed. OUT_OF_RANGE (OFFSET_MISMATCH)
  // where a file is not complete; DATA_LOSS (CORRUPT_FILE) where its bytes are wrong: it is
  // dropped, to be sent again.
  absl::StatusOr<std::shared_ptr<const void>> Seal(const UploadId& upload,
                                                   const std::vector<core::CheckpointFile>& files);

  // At most `max_bytes` from `offset`; empty at the end. NOT_FOUND.
  absl::StatusOr<std::string> Read(absl::string_view hash, int64_t offset, int64_t max_bytes) const;

  using IsReferenced = std::function<bool(const std::string& hash)>;
  // Removes those of the blobs that neither a row nor a Seal in progress names. Returns the number
  // of blobs removed. `is_referenced` is asked under a lock.
  int64_t RemoveUnreferenced(const std::vector<std::string>& hashes,
                             const IsReferenced& is_referenced);
  // Moves all blobs that neither a row nor a Seal in progress names to <folder>/<2 hex>/<32 hex>.
  // Returns their number.
  int64_t SetUnreferencedAside(const std::string& folder, const IsReferenced& is_referenced);
  // Drops uploads of attempts that `is_live` does not know any more.
  void RemoveUploads(const std::function<bool(AttemptId)>& is_live);

 private:
  explicit BlobStore(std::string dir) : dir_(std::move(dir)) {}
  std::string BlobPath(absl::string_view digits) const;
  // Calls `take` with the path of each of the blobs that neither a row nor a Seal in progress
  // names. Returns for how many it returned true.
  int64_t TakeUnreferenced(const std::vector<std::string>& hashes,
                           const IsReferenced& is_referenced,
                           const std::function<bool(const std::string& digits)>& take);
  std::string UploadPath(const UploadId& upload, const core::CheckpointFile& file) const;
  absl::Status SealFile(const UploadId& upload, const core::CheckpointFile& file);
  Mutex& MutexOf(const std::string& path);
  absl::StatusOr<std::vector<std::string>> AllHashes() const;

  const std::string dir_;
  std::array<Mutex, 64> mutexes_;  // one writer a file
  Mutex pins_mutex_;
  std::map<std::string, int> pins_ ABSL_GUARDED_BY(pins_mutex_);  // by hash
};

}  // namespace trainyard::runtime
