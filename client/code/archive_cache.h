// Makes the archive of a folder, or finds the one that was made before while nothing has changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/code/listing.h"
#include "common/base/env.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::code {

struct MadeArchive {
  std::string path;  // of the archive, a file of the cache
  std::string digest;
  int64_t size = 0;
  v1::CodeOrigin origin;  // without the digest of `diff`
  std::string diff;
  std::vector<std::string> left_out;
  bool is_from_cache = false;
};

// Archives, and what the system said of the files of folders when they were made:
//   <dir>/archives/<64 hex>.tar
//   <dir>/folders/<32 hex>      by the hash of the folder's path
// It can be deleted at any time. It borrows `clock`, and is not thread-safe.
class ArchiveCache {
 public:
  // Archives that were used longest ago are removed beyond this size.
  static constexpr int64_t kArchivesBytesMax = int64_t{1} << 30;

  ArchiveCache(std::string dir, Clock& clock) : dir_(std::move(dir)), clock_(clock) {}

  // Makes the archive of a folder. Returns NOT_FOUND if there is no such folder.
  absl::StatusOr<MadeArchive> Make(const std::string& folder, const Limits& limits = {});

  // Returns where an archive lies, or will lie once it has been downloaded.
  std::string PathOf(absl::string_view digest) const;
  // Makes the folders of the cache.
  absl::Status Prepare() const;
  // Removes the oldest archives but `kept`.
  void MakeRoom(const std::string& kept) const;

 private:
  std::string RecordPath(const std::string& folder) const;

  const std::string dir_;
  Clock& clock_;
};

}  // namespace trainyard::code
