// Stores files of checkpoints by their content: <dir>/blobs/<2 hex>/<32 hex>. They grow in
// <dir>/uploads under names made of numbers, and move once size and hash are right, so that a blob
// is complete when it is made. A disk may damage it later: whoever is about to rely on a blob for a
// new checkpoint has it hashed first, and a damaged one moves to <dir>/damaged/<32 hex>.
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
#include "common/base/checkpoint_file.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "server/core/lifecycle/records.h"

namespace trainyard::runtime {

// A checkpoint that is being uploaded.
struct UploadId {
  AttemptId attempt;
  int64_t step = 0;
};

// The store. It is thread-safe and blocks on the disk.
class BlobStore {
 public:
  static constexpr int64_t kFileBytesMax = int64_t{1} << 40;
  // The files of an attempt that are not committed: those of a checkpoint with as many as it may
  // have, and of some more.
  static constexpr int kUploadsMax = kCheckpointFilesMax + 256;

  // Opens the store, and makes its folders.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(std::string dir);

  // Appends `data`, which starts at `offset`, and returns the offset at which to continue.
  // A loss of power may take bytes before it again, which Seal notices, and then all of the file is
  // sent anew. Returns `file.size` if a blob with that hash exists already:
  // an upload that begins (offset 0) hashes that blob, once, and sets it aside if it is damaged, so
  // that the upload heals it. Bytes that are there already are skipped. Returns OUT_OF_RANGE
  // (OFFSET_MISMATCH) for a gap, INVALID_ARGUMENT for bytes past `file.size` or a malformed hash,
  // FAILED_PRECONDITION (TOO_MANY_UPLOADS), and RESOURCE_EXHAUSTED (DISK_FULL), also if the file
  // will not fit.
  absl::StatusOr<int64_t> Append(const UploadId& upload, const core::CheckpointFile& file,
                                 int64_t offset, absl::string_view data);

  // Verifies size and hash of all files and makes them blobs. The result keeps them where they are
  // until the row that names them is committed. Returns OUT_OF_RANGE (OFFSET_MISMATCH) if a file is
  // not complete, and DATA_LOSS (CORRUPT_FILE) if its bytes are wrong; the file is then dropped, so
  // that it is sent again.
  absl::StatusOr<std::shared_ptr<const void>> Seal(const UploadId& upload,
                                                   const std::vector<core::CheckpointFile>& files);

  // Keeps the blobs of these files where they are for as long as the result lives, also if the row
  // that names them is deleted. Whoever pins looks for the row after that: it may be gone already.
  std::shared_ptr<const void> Pin(const std::vector<core::CheckpointFile>& files);
  // Returns the path of a blob, which only readers may use.
  absl::StatusOr<std::string> PathOf(absl::string_view hash) const;

  // Hashes the blobs of the files. Returns what is wrong with the first one that is missing, that
  // cannot be read or that has other bytes, and an empty text if all are whole. It fails only if
  // the process lacks memory or descriptors.
  absl::StatusOr<std::string> FindDamage(const std::vector<core::CheckpointFile>& files) const;

  // Returns at most `max_bytes` from `offset`. The result is empty at the end. Returns NOT_FOUND if
  // there is no such blob.
  absl::StatusOr<std::string> Read(absl::string_view hash, int64_t offset, int64_t max_bytes) const;

  using IsReferenced = std::function<bool(const std::string& hash)>;
  // Removes those of the blobs that neither a row nor a Seal in progress names, and returns their
  // number. `is_referenced` is called under a lock.
  int64_t RemoveUnreferenced(const std::vector<std::string>& hashes,
                             const IsReferenced& is_referenced);
  // Moves all blobs that neither a row nor a Seal in progress names to <folder>/<2 hex>/<32 hex>.
  // Returns their number.
  int64_t SetUnreferencedAside(const std::string& folder, const IsReferenced& is_referenced);
  // Returns the bytes of each job that were uploaded and are in no blob yet.
  std::map<JobId, int64_t> UploadedBytes() const;
  // Drops uploads of attempts that `is_live` does not accept, and forgets what they had hashed.
  void RemoveUploads(const std::function<bool(AttemptId)>& is_live);

 private:
  explicit BlobStore(std::string dir) : dir_(std::move(dir)) {}
  std::string BlobPath(absl::string_view digits) const;
  // Calls `take` with the path of each of the blobs that neither a row nor a Seal in progress
  // names. Returns the number of calls that returned true.
  int64_t TakeUnreferenced(const std::vector<std::string>& hashes,
                           const IsReferenced& is_referenced,
                           const std::function<bool(const std::string& digits)>& take);
  std::string UploadPath(const UploadId& upload, const core::CheckpointFile& file) const;
  absl::Status CheckRoom(const UploadId& upload, const core::CheckpointFile& file) const;
  // Returns true if there is a blob on which this upload may rely.
  absl::StatusOr<bool> HasBlob(const UploadId& upload, const core::CheckpointFile& file,
                               const std::string& digits, bool begins);
  absl::Status SetDamagedAside(const std::string& digits, absl::string_view damage);
  // Makes a whole upload a blob, durably or not at all.
  absl::Status MakeBlob(const std::string& path, const std::string& digits);
  absl::Status SealFile(const UploadId& upload, const core::CheckpointFile& file);
  Mutex& MutexOf(const std::string& path);
  absl::StatusOr<std::vector<std::string>> AllHashes() const;

  const std::string dir_;
  std::array<Mutex, 64> mutexes_;  // one writer for each file
  // It also guards the names of blobs: one that is whole takes its name, and one that is damaged or
  // unreferenced loses it, under this lock.
  Mutex pins_mutex_;
  std::map<std::string, int> pins_ ABSL_GUARDED_BY(pins_mutex_);  // by hash
  Mutex relied_mutex_;
  // The paths of the uploads that have hashed a blob and found it whole. A large file takes longer
  // to hash than a call lasts, so the next call of the upload must not begin again.
  std::set<std::string> relied_ ABSL_GUARDED_BY(relied_mutex_);
};

}  // namespace trainyard::runtime
