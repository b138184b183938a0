// Stores the code archives of programs by their content: <dir>/code/archives/<64 hex>. They grow in
// <dir>/code/uploads, one file for each user and digest, and move once their digest is right. So an
// archive that has its name is whole.
//
// An archive is kept while a job has it. One that was just uploaded, or was just asked for, is kept
// for some time more, until the job that is about to be submitted has it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "common/base/mutex.h"

namespace trainyard::runtime {

// The store. It is thread-safe. Append, Read and Sweep block on the disk.
class CodeStore {
 public:
  // The largest content: code::kArchiveBytesMax of the client and of the workers.
  static constexpr int64_t kBytesMax = int64_t{320} << 20;
  // The uploads that one user may have begun.
  static constexpr int kUploadsMax = 8;
  // The time for which an archive stays that no job has.
  static constexpr absl::Duration kKeep = absl::Hours(1);

  // Opens the store, makes its folders, and drops uploads that were not completed.
  static absl::StatusOr<std::unique_ptr<CodeStore>> Open(const std::string& dir, Clock& clock);

  // Appends `data`, which starts at `offset`, and returns the offset at which to continue. At
  // `size` the archive is on disk, and `user` holds it. Returns OUT_OF_RANGE (OFFSET_MISMATCH) for
  // a gap, INVALID_ARGUMENT for bytes past `size` or a malformed digest, DATA_LOSS (CORRUPT_FILE)
  // if all bytes have come and are not what the digest says, and RESOURCE_EXHAUSTED
  // (CODE_TOO_LARGE, TOO_MANY_UPLOADS, DISK_FULL).
  absl::StatusOr<int64_t> Append(const std::string& user, const std::string& digest, int64_t size,
                                 int64_t offset, absl::string_view data);

  // Returns the size of an archive, or -1 if there is none.
  int64_t SizeOf(const std::string& digest) const;
  // Returns true if the user has uploaded the archive, or was told that it is there, not long ago.
  bool IsHeld(const std::string& user, const std::string& digest) const;
  // Returns the bytes of the archives that the user holds, but for those in `counted`.
  int64_t HeldBytes(const std::string& user, const std::set<std::string>& counted) const;
  // Lets the user hold an archive, if it is there, from now on. Returns false if it is not there.
  bool Hold(const std::string& user, const std::string& digest);

  // Returns at most `max_bytes` from `offset`. The result is empty at the end. Returns NOT_FOUND
  // (CODE_NOT_FOUND) if there is no such archive.
  absl::StatusOr<std::string> Read(const std::string& digest, int64_t offset,
                                   int64_t max_bytes) const;

  // Removes what nobody holds and `is_referenced` does not accept, and uploads that were given up.
  // Returns the number of archives that are gone. `is_referenced` is called under a lock.
  int64_t Sweep(const std::function<bool(const std::string& digest)>& is_referenced);

 private:
  CodeStore(std::string dir, Clock& clock) : dir_(std::move(dir)), clock_(clock) {}
  absl::Status Load();
  std::string ArchivePath(absl::string_view digits) const;
  // Returns RESOURCE_EXHAUSTED if the upload cannot succeed.
  absl::Status CheckRoom(const std::string& prefix, int64_t size) const;
  // Gives a complete upload its name.
  absl::Status Complete(const std::string& path, const std::string& user, const std::string& digest,
                        int64_t size);
  void RemoveOldUploads();

  const std::string dir_;
  Clock& clock_;
  // One append at a time: uploads are rare, and the second one of a content finds it there.
  Mutex upload_mutex_;
  mutable Mutex mutex_;
  std::map<std::string, int64_t> sizes_ ABSL_GUARDED_BY(mutex_);  // by digest
  // The uptime until which a user holds an archive, by digest and user. An empty user stands for
  // those from before the start of the server.
  std::map<std::pair<std::string, std::string>, absl::Duration> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::runtime
